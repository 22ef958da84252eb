"""Operators that do to their process what they should not; importable, as a user's are."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from marin_dsl import File, context, op


class Unpicklable(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message, lambda: None)
        self.handle = threading.Lock()


@op(version="1", isolate=True)
def isolated(way: str) -> Any:
    print(f"about to {way}")
    return WAYS[way]()


@op(version="1", isolate=True)
def doing(number: int, way: str, inputs: list) -> Any:
    return WAYS[way]()


@op(version="1")
def stumbling(memory: str) -> int:
    """Leaves something behind and goes wrong, in the ways that its memory still lists."""
    scratch = context().scratch
    assert list(scratch.iterdir()) == [], "something of an earlier attempt is still there"
    (scratch / "left.txt").write_text("left")
    ways = Path(memory).read_text().split()
    Path(memory).write_text(" ".join(ways[1:]))
    if ways:
        WAYS[ways[0]]()
    return len(list(scratch.iterdir()))


@op(version="1")
def continuing(factor: int) -> Any:
    @op(version="1", name="doubling")
    def doubling(n: int) -> int:
        return factor * n

    print("going on")
    return [doubling(4), plain(5)]


@op(version="1")
def plain(value: Any) -> Any:
    return value


def segfault() -> None:
    ctypes.string_at(0)


def noted() -> None:
    error = ValueError("no")
    error.add_note("try another one")
    raise error


def hang() -> None:
    for _ in range(1200):
        time.sleep(0.05)


def leave_a_child() -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return child.pid


def closed_output() -> str:
    os.close(1)
    os.close(2)
    time.sleep(0.3)
    return "done"


def unpicklable() -> None:
    raise Unpicklable("no way")


def interrupt() -> None:
    raise KeyboardInterrupt("mine")


def flood() -> str:
    for number in range(60_000):
        print(f"line {number}")
    return "done"


def scratch() -> tuple:
    folder = context().scratch
    assert list(folder.iterdir()) == []
    (folder / "data").write_text("kept")
    context().log("logged")
    context().observe("n", 3)
    return File.of(folder / "data"), str(folder)


def leave_scratch_and_die() -> None:
    (context().scratch / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)


def memory() -> int:
    return len(bytearray(b"x" * (150 << 20)))


def fork(end: Any) -> str:
    """The child comes back from the operator in some way, as a child should not; it is faster than its parent."""
    child = os.fork()
    if child == 0:
        end()
        return "child"
    _, status = os.waitpid(child, 0)
    return f"parent of one that ended with {os.waitstatus_to_exitcode(status)}"


def lose_the_store() -> bytes:
    blobs = context().scratch.parents[3] / "blobs"
    if blobs.exists():
        blobs.rename(blobs.with_name("others"))
    blobs.write_text("in the way")
    return bytes(100_000)


def cancel() -> None:
    """As another process would that marks the run as cancelled."""
    store = context().scratch.parents[3]
    (run,) = (store / "runs").iterdir()
    (run / "cancelled").touch()
    context().check()


WAYS: dict[str, Any] = {
    "lose the store": lose_the_store,
    "cancel": cancel,
    "fork and return": lambda: fork(lambda: None),
    "fork and exit": lambda: fork(sys.exit),
    "fork and exit with 3": lambda: fork(lambda: sys.exit(3)),
    "fork and exit with a text": lambda: fork(lambda: sys.exit("gone wrong")),
    "fork and raise": lambda: fork(lambda: 1 / 0),
    "fork in a fork": lambda: fork(lambda: print(fork(lambda: None))),
    "return": lambda: 3,
    "pid": os.getpid,
    "modules": lambda: sorted(name for name in ("jax", "distributed", "numpy") if name in sys.modules),
    "raise": lambda: 1 / 0,
    "noted": noted,
    "unpicklable": unpicklable,
    "unstorable": lambda: [threading.Lock()],
    "exit": lambda: sys.exit("bye"),
    "interrupt": interrupt,
    "hard exit": lambda: os._exit(3),
    "silent exit": lambda: os._exit(0),
    "segfault": segfault,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "hang": hang,
    "leave a child": leave_a_child,
    "closed output": closed_output,
    "flood": flood,
    "scratch": scratch,
    "leave scratch and die": leave_scratch_and_die,
    "memory": memory,
    "folder": lambda: [str(Path.cwd()), os.environ.get("MARIN_TEST_SETTING")],
}


@op(version="1")
def counted(folder: str, way: str, until: int) -> int:
    """Goes wrong until it has been tried so often; the memory of that is outside of the store."""
    tries = Path(folder) / "tries"
    with tries.open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    number = len(tries.read_text().splitlines())
    if number < until:
        context().log(f"attempt {number}")
        (context().scratch / "half").write_text("half")
        MISHAPS[way]()
    assert list(context().scratch.iterdir()) == []
    return number


def refused() -> None:
    raise ConnectionRefusedError("nobody there")


MISHAPS: dict[str, Any] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "refused": refused,
    "wrong": lambda: int("x"),
    "hang": hang,
}
