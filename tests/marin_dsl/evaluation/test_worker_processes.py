"""Whether there can be worker processes, said before anything is started."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import marin_dsl
from marin_dsl import Store, evaluate, op
from marin_dsl.evaluation.worker_processes import WorkersCannotStart, check_workers


@op(version="1")
def f(n: int) -> int:
    return n


def test_a_store_in_memory_is_not_for_worker_processes():
    with pytest.raises(WorkersCannotStart) as caught:
        evaluate(f(1), store="memory://workers", workers=2)
    assert str(caught.value) == (
        "store memory://workers is in the memory of this process, and worker processes do not see it: leave `workers` "
        "out, or choose another store with --store or MARIN_STORE"
    )
    assert evaluate(f(1), store="memory://workers", workers=2, debug=True).value == 1, "there are none with debug=True"


@pytest.mark.parametrize("given", [0, -1, 1.5, math.nan, True, "2"])
def test_what_is_no_number_of_processes_is_refused(given, tmp_path):
    with pytest.raises(ValueError) as caught:
        evaluate(f(1), store=tmp_path, workers=given)
    assert str(caught.value) == (
        f"workers={given!r}: expected how many processes to start, a number like 2, or None for threads of this one"
    )


BEGIN = """
    from marin_dsl import Store
    from marin_dsl.evaluation.worker_processes import check_workers

    def check():
        check_workers(Store("store"), 2)
        print("they can start")
"""

GUARDED = {
    "a guard": 'if __name__ == "__main__":\n    check()',
    "a guard the other way round": 'if "__main__" == __name__ and True:\n    for _ in range(1):\n        check()',
    "a guard with an end": 'if __name__ != "__main__":\n    pass\nelse:\n    check()',
}
UNGUARDED = {
    "none": "check()",
    "beside a guard": 'if __name__ == "__main__":\n    pass\ncheck()',
    "another condition": "if check:\n    check()",
}


SCRIPTS = [*((end, True) for end in GUARDED.values()), *((end, False) for end in UNGUARDED.values())]


def run(folder: Path, *arguments: str) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(marin_dsl.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.stdout, done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("how", [["script.py"], ["-m", "script"]])
@pytest.mark.parametrize(("end", "can"), SCRIPTS)
def test_a_script_that_each_worker_would_run_again_is_told_where_and_how(tmp_path, how, end, can):
    text = textwrap.dedent(BEGIN) + end
    (tmp_path / "script.py").write_text(text)
    out, last = run(tmp_path, *how)
    if can:
        assert (out, last) == ("they can start\n", "")
    else:
        line = text.count("\n") + 1
        assert f"script.py:{line}: each worker process begins by importing this script" in last
        assert 'below `if __name__ == "__main__":`' in last


def test_without_a_script_there_is_nothing_that_workers_would_run_again(tmp_path):
    assert run(tmp_path, "-c", textwrap.dedent(BEGIN) + "check()") == ("they can start\n", "")
    check_workers(Store(tmp_path), 2)
