"""Operators: functions whose calls build expressions."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from marin_dsl.code_identity import CodeIdentity, code_identity
from marin_dsl.encoding import Unencodable, encode
from marin_dsl.encoding.places import module_path
from marin_dsl.expression import Expression, caller
from marin_dsl.expression.annotations import Annotations
from marin_dsl.expression.choices import mapped
from marin_dsl.operator.current import looked_at
from marin_dsl.operator.signature import Signature, WrongCall

P = ParamSpec("P")
R = TypeVar("R")

PACKAGES: set[str] = set()
"""Packages that define operators, by their first names: all that is in them is a project's, also if installed."""

MYPY = False
"""What mypy takes for true: it reads no overloads of a call, its plugin says what a call takes."""


class Policy(TypedDict, total=False):
    """How the calls of an operator are evaluated, unless an expression says otherwise; `op` describes the settings."""

    priority: int
    retries: int | None
    timeout: str | float | timedelta | None
    isolate: bool
    hosts: int
    transient: type[BaseException] | Iterable[type[BaseException]]


class Operator(Generic[P, R]):
    """A pure function of an experiment: calling it builds an expression, and nothing runs.

    Attributes:
        function: the plain Python function.
        name: module path and qualified name, or the name that was given.
        version: the declared version; None when the code itself is the identity.
        impure: whether it is called anew in each run.
        is_inline: whether it is a part of the language, evaluated by whoever needs it.
    """

    is_inline: ClassVar[bool] = False

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        version: str | None = None,
        pin: Sequence[str] = (),
        includes: Sequence[Any] = (),
        excludes: Sequence[Any] = (),
        resources: Mapping[str, float] | None = None,
        impure: bool = False,
        **policy: Unpack[Policy],
    ) -> None:
        if not inspect.isfunction(function):
            raise TypeError(
                f"@op stands above a function, and got {function!r:.80}; settings are named: @op(version='1')"
            )
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"@op above `async def {function.__name__}`: a coroutine is no result that could be stored; write "
                f"`def {function.__name__}(...)` that returns asyncio.run(...) of it"
            )
        if inspect.isgeneratorfunction(function):
            raise TypeError(
                f"@op above {function.__name__}, which yields: a generator can be read only once; collect what it "
                "yields in a list, and return that"
            )
        if version is not None and not isinstance(version, str):
            raise TypeError(f"@op(version={version!r}): a version is text; write version={str(version)!r}")
        if isinstance(pin, str):
            raise TypeError(f"@op(pin={pin!r}): pin takes a list of distributions; write pin=[{pin!r}]")
        self.function: Callable[P, R] = function
        self.name = name or f"{module_path(function.__module__)}.{function.__qualname__}"
        self.version = version
        self.pin = tuple(pin)
        self.includes, self.excludes = tuple(includes), tuple(excludes)
        self.impure = impure
        self.annotations = Annotations({} if resources is None else resources, **policy)
        functools.update_wrapper(self, function)
        PACKAGES.add((function.__module__ or "").partition(".")[0])

    if not MYPY:
        # Editors show the first; the second is there because only the plugin can say "or an expression of one".
        @overload
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Expression[R]: ...
        @overload
        def __call__(self, *args: Any, **kwargs: Any) -> Expression[R]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Expression[R]:
        """The expression that applies the operator to these arguments.

        Raises:
            WrongCall: the arguments do not fit the signature, or one is no value.
        """
        frame = sys._getframe(1)  # `caller(1)`, without a call: each node of a graph pays for it
        return self.applied(args, kwargs, (frame.f_code.co_filename, frame.f_lineno))

    def map(self, items: Expression[Any] | Iterable[Any], /, **others: Any) -> Expression[list[R]]:
        """The results for each element of a list, which may be an expression: then its calls are made when it is known.

        An element's call is identified by the element and not by its place, so that one element more is one call more.

        Args:
            items: an expression of a list, or a list of values and expressions; each goes to the first parameter.
            others: the other arguments, the same for each.

        Raises:
            WrongCall: the arguments do not fit the signature, or one is no value.
            TypeError: `items` is neither a list nor an expression.
        """
        return mapped(self, items, others, caller(1))

    def applied(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], origin: tuple[str, int]) -> Expression[R]:
        """The expression of a call that is written at `origin`."""
        arguments = self.signature.bind(args, dict(kwargs), origin)
        try:
            return Expression.apply(self, arguments, annotations=self.annotations, origin=origin)
        except Unencodable as error:
            raise WrongCall(f"{origin[0]}:{origin[1]}: {self.short_name}(...): {error}") from None

    @functools.cached_property
    def signature(self) -> Signature:
        """The parameters and their types."""
        return Signature.of(self.function, self.short_name)

    @functools.cached_property
    def result_hint(self) -> Any:
        """The annotated type of the result, or None."""
        return self.signature.hints.get("return")

    @property
    def short_name(self) -> str:
        """The name without the module."""
        return self.name.rpartition(".")[2]

    @functools.cached_property
    def code(self) -> CodeIdentity:
        """What the code is, independent of layout, comments and location."""
        looked_at(self)
        return code_identity(self.function, includes=self.includes, excludes=self.excludes)

    def look_again(self) -> bool:
        """Forget what the code was if it is another one now; whether the operator had an identity that it now lost."""
        code: CodeIdentity | None = self.__dict__.get("code")
        if code is None or code.is_current:
            return False
        identity: bytes | None = self.__dict__.get("identity")
        for name in ("code", "identity"):
            self.__dict__.pop(name, None)
        return identity is not None and identity != self.identity

    @functools.cached_property
    def pinned(self) -> dict[str, str]:
        """Versions that are part of the identity: of the pinned distributions, and of `python`."""
        return {distribution: installed_version(distribution) for distribution in sorted(self.pin)}

    @functools.cached_property
    def identity(self) -> bytes:
        """32 bytes: name, declared version or code digest, and pinned versions."""
        meaning = ("version", self.version) if self.version is not None else ("code", self.code.digest)
        return hashlib.sha256(b"marin-operator-1\0" + encode([self.name, meaning, self.pinned])).digest()

    @property
    def __marin_identity__(self) -> bytes:
        """What a function that calls this operator depends on."""
        return self.identity

    @property
    def __marin_code__(self) -> tuple[bytes, Any, tuple[Any, ...], tuple[Any, ...]] | None:
        """For a caller's code identity: the code that stands for this operator, so that circles of them are one unit.

        None when a declared version stands for it instead.
        """
        if self.version is not None:
            return None
        return encode([self.name, self.pinned]), self.function, self.includes, self.excludes

    @property
    def is_importable(self) -> bool:
        """Whether other processes can import it; if not, it travels with all that it is made of."""
        module = self.function.__module__
        return module != "__main__" and _found(module, self.function.__qualname__) is self

    def __repr__(self) -> str:
        return f"<operator {self.name}{f' version {self.version}' if self.version is not None else ''}>"

    def __reduce__(self) -> Any:
        if self.is_importable:
            return _find, (self.function.__module__, self.function.__qualname__)
        names = ("name", "version", "pin", "includes", "excludes", "impure")
        settings = {name: getattr(self, name) for name in names}
        settings |= {name: getattr(self.annotations, name) for name in ("resources", *Policy.__annotations__)}
        return _make, (self.function, settings)


@overload
def op(function: Callable[P, R], /) -> Operator[P, R]: ...
@overload
def op(
    *,
    name: str | None = None,
    version: str | None = None,
    pin: Sequence[str] = (),
    includes: Sequence[Any] = (),
    excludes: Sequence[Any] = (),
    resources: Mapping[str, float] | None = None,
    impure: bool = False,
    **policy: Unpack[Policy],
) -> Callable[[Callable[P, R]], Operator[P, R]]: ...
def op(function: Any = None, /, **settings: Any) -> Any:
    """Make a function an operator: its calls build expressions.

    Args:
        function: the function, when used as a bare decorator.
        name: identity's name instead of module path and qualified name, so that the code can move.
        version: makes the version the identity instead of the code; edits are then reported and do not run again.
        pin: distributions whose installed versions enter the identity (`python` for the interpreter).
        includes: functions, classes or values that count as its code although it does not name them.
        excludes: functions, classes or values that it names and that do not count as its code.
        resources: what a worker must have free for it, such as `{"CPU": 2}`; no part of identity.
        priority: larger runs earlier among what is ready; no part of identity, like the next five.
        retries: how often a call is tried again that timed out, killed its process or lost its worker, or raised
            something transient; by default 2 times, and never after a timeout.
        timeout: `"2h"`, `"90s"`, `"1.5m"`, seconds or a timedelta, from when a worker has loaded the code. An isolated
            call is killed then; of others the worker lets go, and `context().check()` stops them.
        isolate: run each call in a fresh process, with its output kept, and whatever it does to the process.
        hosts: run each call in so many fresh processes together, with one outcome; `context().gang` tells each its
            rank, and where they meet. On a cluster each has a worker of its own.
        transient: classes of exceptions that may not come again (`(ConnectionError,)`), so that a call is tried again.
        impure: it is called anew in each run, for what it gives does not depend on its arguments alone; what is made
            of the value runs again only where the value is another one.
    """
    if function is None:
        return lambda decorated: Operator(decorated, **settings)
    return Operator(function, **settings)


def installed_version(distribution: str) -> str:
    """The installed version of a distribution (or of `python`); `missing` when it is not installed."""
    if distribution == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _found(module: str, qualname: str) -> Any:
    try:
        return functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def _find(module: str, qualname: str) -> Any:
    found = _found(module, qualname)
    if not isinstance(found, Operator):
        raise LookupError(f"there is no operator {module}.{qualname} here; is the project's code on the worker's path?")
    return found


def _make(function: Any, settings: dict[str, Any]) -> Operator[Any, Any]:
    return Operator(function, **settings)
