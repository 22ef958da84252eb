"""Whether an operator is pure: what it returns follows from its arguments, and it changes nothing else."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import cloudpickle
import numpy as np

from marin_dsl.encoding import Unencodable, decode
from marin_dsl.expression import Expression, caller, encode_arguments
from marin_dsl.expression.keys import splice
from marin_dsl.expression.recipe import short, title
from marin_dsl.operator import Operator
from marin_dsl.operator.secret import revealed
from marin_dsl.testing.sameness import same
from marin_dsl.worker.context import Context, entered


class Impure(AssertionError):
    """An operator is not pure; the message says in what way, and how to mend it."""


def assert_pure(
    operator: Operator[..., Any] | Callable[..., Any], /, *args: Any, fresh_process: bool = False, **kwargs: Any
) -> None:
    """Make sure that an operator is pure, as far as calling it with these arguments shows.

    Its function is called twice, each time with arguments that were encoded and decoded, as in an evaluation. Both
    results have to be the same typed value. Neither call may change its arguments, the global random numbers of
    `random` and NumPy, the working directory or the environment variables, and the second may not change what the first
    was given or returned. Secrets among the arguments are not looked up: other texts stand for theirs.

    Args:
        operator: an operator, or a function that is to become one.
        args: positional arguments: values, or nests of them.
        fresh_process: call it once more, in a new process with another hash seed and working directory.
        kwargs: named arguments.

    Raises:
        Impure: it is not pure.
        WrongCall: the arguments do not fit its signature, or one is no value.
        TypeError: there is an expression among the arguments.
        Exception: whatever the function raises.
    """
    operator = operator if isinstance(operator, Operator) else Operator(operator)
    call = operator.applied(args, kwargs, caller(1))
    if call.references:
        raise TypeError(
            f"assert_pure({operator.short_name}, ...) calls the function, and {call.references[0]!r} has no value yet; "
            "give values, such as evaluate(expression).value"
        )
    first, second = _Execution.of(call), _Execution.of(call)
    _compare(call, first, second)
    if fresh_process:
        _compare_elsewhere(call, first)


@attrs.frozen
class _Execution:
    """One call of an operator's function.

    Attributes:
        arguments: what it was given.
        result: what it returned.
        encoded: the result as bytes, when it was returned.
    """

    arguments: dict[str, Any]
    result: Any
    encoded: bytes

    @classmethod
    def of(cls, call: Expression[Any]) -> _Execution:
        arguments, before = _arguments(call), _Surroundings.now()
        try:
            result = _run(call, arguments)
        except ValueError as error:
            if "read-only" in str(error):
                raise _impure(
                    call,
                    f"it writes into an array that it was given ({error}); arrays among arguments are read-only, "
                    "begin with a copy: np.array(...)",
                ) from error
            raise
        finally:
            changes = list(before.changes())
            before.restore()
        for change in changes:
            raise _impure(call, change)
        _check_unchanged(call, arguments, "it changes its argument")
        return cls(arguments, result, _encoded(call, result))


def _run(call: Expression[Any], arguments: dict[str, Any]) -> Any:
    operator = call.operator
    assert isinstance(operator, Operator)
    with entered(Context(call.key)):
        return operator.signature.call(operator.function, arguments)


def _arguments(call: Expression[Any]) -> dict[str, Any]:
    """The arguments, decoded anew."""
    leaves = call.leaves
    with revealed(lambda reference: f"the text of {reference}"):
        found: dict[str, Any] = decode(
            call.payload[0], read_leaf=lambda digest, size: b"".join(bytes(chunk) for chunk in leaves[digest].chunks())
        )
    return found


def _encoded(call: Expression[Any], result: Any) -> bytes:
    """The result as bytes; expressions in it, with which an evaluation goes on, stand by their keys."""
    try:
        payload, references, _, _ = encode_arguments({"result": result}, functions="importable")
    except Unencodable as error:
        raise _impure(call, f"what it returns cannot be stored: {error}") from None
    return splice(payload, (reference.key for reference in references))


def _check_unchanged(call: Expression[Any], arguments: dict[str, Any], how: str) -> None:
    for name, value in _arguments(call).items():
        if not _equal(arguments[name], value):
            place, was, found = _difference(value, arguments[name], name)
            raise _impure(
                call,
                f"{how} `{name}`: `{place}` was {short(was)} and is {short(found)}; work on a copy, "
                f"{name} = copy.deepcopy({name})",
            )


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are one by their encoding; the second one is known to have one."""
    try:
        return encode_arguments({"": one})[0] == encode_arguments({"": other})[0]
    except Unencodable:
        return False


def _compare(call: Expression[Any], first: _Execution, second: _Execution) -> None:
    _check_unchanged(call, first.arguments, "another call of it changes what it was given before as its argument")
    if _encoded(call, first.result) != first.encoded:
        raise _impure(
            call,
            "another call of it changes what it has returned before: it keeps the object (as a global, a cache or an "
            "attribute) and changes it later; return a copy",
        )
    if first.encoded != second.encoded:
        place, one, other = _difference(first.result, second.result, "result")
        raise _impure(
            call,
            f"it returned two different values for equal arguments: `{place}` is {short(one)} and then {short(other)}; "
            "draw random numbers from context().rng(), and let the clock, files and whatever else counts be arguments",
        )


def _compare_elsewhere(call: Expression[Any], first: _Execution) -> None:
    script = "import sys, cloudpickle; call, run = cloudpickle.load(sys.stdin.buffer); run(call)"
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=cloudpickle.dumps((call, _report)),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            cwd=folder,
            capture_output=True,
            check=False,
        )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise _impure(call, f"in a fresh process it does not come to a value:\n{said}")
    if done.stdout.splitlines()[-1] != first.encoded.hex().encode():
        raise _impure(
            call,
            "in a fresh process with another hash seed it returns another value; sort what comes out of sets, use "
            "marin_dsl.digest instead of hash(...), and depend on nothing that an earlier call or import has set up",
        )


def _report(call: Expression[Any]) -> None:
    """In the fresh process: print the encoded result."""
    print("\n" + _encoded(call, _run(call, _arguments(call))).hex())


@attrs.frozen
class _Surroundings:
    """What every function can see and change, and no operator may."""

    random: bytes
    numpy: bytes
    folder: str
    environment: dict[str, str]

    @classmethod
    def now(cls) -> _Surroundings:
        return cls(pickle.dumps(random.getstate()), pickle.dumps(np.random.get_state()), os.getcwd(), dict(os.environ))

    def changes(self) -> Iterator[str]:
        """What is not as it was, each with its remedy."""
        now = _Surroundings.now()
        for name, one, other in (("random", self.random, now.random), ("np.random", self.numpy, now.numpy)):
            if one != other:
                yield (
                    f"it draws from the global random numbers of `{name}`, or seeds them; draw from context().rng(), "
                    "which is seeded from the call"
                )
        if self.folder != now.folder:
            yield f"it changes the working directory (to {now.folder}); use whole paths, below context().scratch"
        names = {name for name, _ in self.environment.items() ^ now.environment.items()}
        if names:
            yield (
                f"it changes the environment variables {', '.join(sorted(names))}; hand them to the program that needs "
                "them: subprocess.run(..., env={**os.environ, ...})"
            )

    def restore(self) -> None:
        random.setstate(pickle.loads(self.random))
        np.random.set_state(pickle.loads(self.numpy))
        os.chdir(self.folder)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)


def _difference(one: Any, other: Any, place: str) -> tuple[str, Any, Any]:
    """The first place where two values that are not the same differ, and what stands there in each."""
    for step, left, right in _parts(one, other):
        if not same(left, right):
            return _difference(left, right, place + step)
    return place, one, other


def _parts(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if type(one) is not type(other):
        return
    if isinstance(one, list | tuple) and len(one) == len(other):
        for position, (left, right) in enumerate(zip(one, other, strict=True)):
            yield f"[{position}]", left, right
    elif isinstance(one, Mapping) and one.keys() == other.keys():
        for key in one:
            yield f"[{key!r}]", one[key], other[key]
    elif attrs.has(type(one)):
        for field in attrs.fields(type(one)):
            yield f".{field.name}", getattr(one, field.name), getattr(other, field.name)


def _impure(call: Expression[Any], problem: str) -> Impure:
    place = f"{call.origin[0]}:{call.origin[1]}: " if call.origin else ""
    return Impure(f"{place}{title(call)} is not pure: {problem}")
