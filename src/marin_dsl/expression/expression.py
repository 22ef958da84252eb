"""The immutable graph of an experiment: applications of operators to values and to other expressions.

An expression is identified by its recipe key, which is computed when it is built: the digest of the operator's identity
and of the encoded arguments, each expression among them standing by its own recipe key. Building one does no I/O.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

import attrs

from marin_dsl.encoding import (
    NO_FUNCTIONS,
    Encoder,
    Functions,
    Leaf,
    Unencodable,
    decode,
    encode,
    format_digest,
)
from marin_dsl.encoding.plain import PLAIN
from marin_dsl.encoding.tags import MAP, head
from marin_dsl.encoding.writer import WRITERS, Taken
from marin_dsl.expression.annotations import Annotations
from marin_dsl.expression.arithmetic import Arithmetic
from marin_dsl.expression.fields import NAMES, Fields
from marin_dsl.expression.keys import recipe_key, splice, tagged_identity

if TYPE_CHECKING:
    from marin_dsl.expression.inline import InlineOperator
    from marin_dsl.operator import Operator

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


class Expression(Fields, Arithmetic, Generic[T_co]):
    """A value that an experiment describes, and that has not been computed (or not here).

    Expressions are equal when they describe the same value: `==` compares recipe keys. The lazy comparison is `eq`.
    Its attributes are those of `Fields`, and cannot be set.
    """

    __slots__ = ()

    __array_ufunc__ = None  # `array + expression` is one expression, not an array of them

    def __init__(self) -> None:
        raise TypeError("an expression is made by calling an operator (@op), not by calling Expression")

    @classmethod
    def apply(
        cls,
        operator: Operator[Any, Any] | InlineOperator,
        arguments: Mapping[str, Any],
        *,
        annotations: Annotations | None = None,
        origin: tuple[str, int] | None = None,
    ) -> Expression[Any]:
        """The application of an operator to named arguments.

        Raises:
            Unencodable: an argument, or a part of it, is no value; the path begins with the argument's name.
        """
        payload, references, leaves, functions = encode_arguments(arguments)
        keys: tuple[bytes, ...] = ()
        ordered = labelled = False
        if references:
            keys = tuple([reference.key for reference in references])
            ordered = True in [reference.ordered for reference in references]
            labelled = True in [reference.labelled for reference in references]
            functions = with_those_of(references, functions)
        key = recipe_key(operator.identity, payload, keys)
        how = annotations or _NO_ANNOTATIONS
        return sealed(
            Fields(operator, payload, references, leaves, functions, key, how, None, origin, b"", (), ordered, labelled)
        )

    def _replace(self, **changes: Any) -> Expression[T_co]:
        return sealed(Fields(**{name: changes.get(name, getattr(self, name)) for name in NAMES}))

    @property
    def identity(self) -> bytes:
        """32 bytes for what is applied to the arguments: the operator, with the facts if there are any."""
        return tagged_identity(self.operator.identity, self.facts)

    def named(self, name: str, version: str) -> Expression[T_co]:
        """The same expression under a label; the label enters no identity and moves nothing.

        Raises:
            ValueError: the name or the version cannot be a label.
        """
        from marin_dsl.labels import check_label

        return self._replace(label=check_label(name, version), labelled=True)

    def with_(
        self,
        *,
        resources: Mapping[str, float] | None = None,
        priority: int | None = None,
        title: str | None = None,
        retries: int | None = None,
        timeout: str | float | timedelta | None = None,
        isolate: bool | None = None,
        hosts: int | None = None,
        transient: type[BaseException] | Iterable[type[BaseException]] | None = None,
        source: str | None = None,
    ) -> Expression[T_co]:
        """The same expression with other annotations: how it is evaluated and called, never what it is.

        Args:
            resources: what a worker must have free, such as `{"CPU": 2}`.
            priority: larger runs earlier among what is ready.
            title: what people call it.
            retries: how often to try again after a timeout, a death or loss of the process, or a transient exception.
            timeout: `"2h"`, `"90s"`, `"1.5m"`, seconds or a timedelta; `math.inf` takes the operator's own away.
            isolate: run it in a fresh process.
            hosts: how many fresh processes run it together; 1 takes the operator's own number away.
            transient: classes of exceptions after which it is tried again.
            source: where external data lies.

        Raises:
            ValueError: the timeout is no length of time, the retries or hosts no number of them, or a resource no
                amount.
            TypeError: another one is of the wrong type.
        """
        given = {
            "resources": resources, "priority": priority, "title": title, "retries": retries,
            "timeout": timeout, "isolate": isolate, "hosts": hosts, "transient": transient, "source": source,
        }  # fmt: skip
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return self._replace(annotations=attrs.evolve(self.annotations, **changes))

    def field(self, name: str) -> Expression[Any]:
        """The attribute of that name of the value."""
        return _inline("field", {"value": self, "name": name})

    def __getitem__(self, key: Any) -> Expression[Any]:
        if isinstance(key, slice):
            return _inline("slice", {"value": self, "start": key.start, "stop": key.stop, "step": key.step})
        return _inline("getitem", {"value": self, "key": key})

    @overload
    def recover(self, other: Expression[U]) -> Expression[T_co | U]: ...
    @overload
    def recover(self, other: U) -> Expression[T_co | U]: ...
    def recover(self, other: Any) -> Expression[Any]:
        """Its value, or that of `other` where it has none because something failed; `other` is demanded only then."""
        from marin_dsl.expression.choices import recover

        return recover(self, other, caller(1))

    def eq(self, other: Any) -> Expression[Any]:
        """Whether the values are equal, as an expression (`==` compares the expressions themselves)."""
        return _inline("eq", {"left": self, "right": other})

    @property
    def __marin_identity__(self) -> bytes:
        """What a function that names this expression depends on."""
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value before it is evaluated; evaluate it, or decide inside an operator"
        )

    if not TYPE_CHECKING:  # to a type checker, what has these has everything: each protocol would take any expression

        def __iter__(self) -> NoReturn:
            raise TypeError(
                f"{self!r} cannot be iterated before it is evaluated; take parts with expr[0], expr['name']"
            )

        def __len__(self) -> NoReturn:
            raise TypeError(f"{self!r} has no length before it is evaluated; compute it inside an operator")

        def __contains__(self, item: object) -> NoReturn:
            raise TypeError(f"{self!r} has no members before it is evaluated; ask inside an operator")

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(
                f"an expression has no attribute `{name}`; for that field of its value write .field({name!r})"
            )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} is immutable; build another expression instead of setting `{name}`")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} is immutable; `{name}` cannot be deleted")

    def __repr__(self) -> str:
        return f"<Expression {self.operator.name} {format_digest(self.key)[7:19]}>"

    def __str__(self) -> str:
        from marin_dsl.expression.display import tree

        return tree(self)

    def _repr_html_(self) -> str:
        from marin_dsl.expression.display import tree_html

        return tree_html(self)

    def __copy__(self) -> Expression[T_co]:
        return self

    def __deepcopy__(self, memo: object) -> Expression[T_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from marin_dsl.expression.pickling import flattened, rebuilt

        return rebuilt, (flattened(self),)


def sealed(fields: Fields) -> Expression[Any]:
    """The expression of these fields: the same object, which nobody can change any more."""
    fields.__class__ = Expression
    return fields  # type: ignore[return-value]


_NO_ANNOTATIONS = Annotations()
_NO_LEAVES: Mapping[bytes, Leaf] = MappingProxyType({})


Pieces = tuple[tuple[bytes, ...], tuple[Expression[Any], ...], Mapping[bytes, Leaf], Functions]
"""Encoded arguments cut at each expression, those expressions, large literals, and functions that stand in memory."""


class NoValueYet(Unencodable):
    """An expression stands where a value is needed."""


class _ArgumentEncoder(Encoder):
    """Writes arguments; an expression among them is a chunk by itself.

    Attributes:
        met: how many expressions were met.
    """

    met = 0

    def whole(self, value: Any, key: Any, step: Callable[[Any], str]) -> bytes:
        chunks = self.aside(value, key, step)
        if any(type(chunk) is Expression for chunk in chunks):
            raise Unencodable(
                "an expression cannot be a dict key or a member of a set: its value is not known; use a list"
            )
        return b"".join(chunks)


def _write_expression(encoder: Encoder, value: Expression[Any]) -> None:
    if not isinstance(encoder, _ArgumentEncoder):
        raise NoValueYet(f"{value!r} has no value yet; evaluate it, or pass it as an argument of an operator")
    encoder.out.append(value)
    encoder.met += 1


WRITERS[Expression] = _write_expression


@functools.lru_cache(maxsize=4096)  # a pure function: it cannot go stale
def _frame(names: tuple[str, ...]) -> list[tuple[bytes, str]]:
    """Names in the order of a map, each with all that is written before its value (the map's head before the first)."""
    ordered = sorted((encode(name), name) for name in names)
    return [
        (encoded if place else head(MAP, len(names)) + encoded, name) for place, (encoded, name) in enumerate(ordered)
    ]


def encode_arguments(arguments: Mapping[str, Any], *, functions: Taken = "any") -> Pieces:
    """Named arguments as encoded pieces, the expressions between the pieces, and what is not in them.

    Args:
        arguments: values by name.
        functions: which functions are values, as for `encode`.

    Raises:
        Unencodable: a part is no value, or an expression stands where it cannot (a dict key, a member of a set).
    """
    if not arguments:
        return (head(MAP, 0),), (), _NO_LEAVES, NO_FUNCTIONS
    frame = _frame(tuple(arguments))
    chunks: list[bytes] = []
    for written_before, name in frame:
        value = arguments[name]
        spelled = PLAIN.get(type(value))
        data = spelled and spelled(value)
        if data is None:
            return _encode_nests(arguments, frame, functions)
        chunks += (written_before, data)
    return (b"".join(chunks),), (), _NO_LEAVES, NO_FUNCTIONS


def _encode_nests(arguments: Mapping[str, Any], frame: Iterable[tuple[bytes, str]], taken: Taken) -> Pieces:
    encoder = _ArgumentEncoder(taken)
    try:
        for written_before, name in frame:
            encoder.out.append(written_before)
            try:
                encoder.write(arguments[name])
            except Unencodable as error:
                raise error.inside(name) from None
    except RecursionError:
        raise Unencodable("an argument contains itself, or is nested too deeply to be data") from None
    functions = _functions(encoder)
    if not encoder.met:
        return (b"".join(encoder.out),), (), encoder.leaves, functions
    pieces: list[bytes] = []
    references: list[Expression[Any]] = []
    current: list[bytes] = []
    for chunk in encoder.out:
        if type(chunk) is Expression:
            pieces.append(b"".join(current))
            references.append(chunk)
            current = []
        else:
            current.append(chunk)
    return (*pieces, b"".join(current)), tuple(references), encoder.leaves, functions


def _functions(encoder: Encoder) -> Functions:
    met = encoder.functions
    if not met:
        return NO_FUNCTIONS
    return Functions({named: each for named, (each, _) in met.items()}, tuple(seen for _, seen in met.values()))


def with_those_of(references: Iterable[Expression[Any]], own: Functions) -> Functions:
    """Functions of an expression's arguments, with those that its inline references need: who needs it computes them.

    What other operators give is read from a store, where no function is that would have to be in memory.
    """
    needed = [each.functions for each in references if each.functions and each.operator.is_inline]
    if not needed:
        return own
    every = (own, *needed)
    held = {named: each for found in every for named, each in found.items()}
    return Functions(held, tuple(seen for found in every for seen in found.seen))


def arguments_of(expression: Expression[Any]) -> dict[str, Any]:
    """The arguments of an expression whose literals are small, with the expressions in their places."""
    by_key = {reference.key: reference for reference in expression.references}
    found: dict[str, Any] = decode(
        splice(expression.payload, (reference.key for reference in expression.references)), reference=by_key.__getitem__
    )
    return found


def walk(*roots: Expression[Any], seen: set[bytes] | None = None) -> Iterator[Expression[Any]]:
    """Every distinct expression below the roots, each after those it refers to; iterative.

    Args:
        *roots: where to begin.
        seen: keys of expressions that are left out, with all below them; those that are found are added.
    """
    seen = set() if seen is None else seen
    stack: list[Expression[Any] | None] = [*reversed(roots)]
    while stack:
        expression = stack.pop()
        if expression is None:  # all that the one below it refers to has been told
            yield stack.pop()  # type: ignore[misc]
        elif expression.key not in seen:
            seen.add(expression.key)
            if expression.references:
                stack += (expression, None, *reversed(expression.references))
            else:
                yield expression


def caller(above: int) -> tuple[str, int]:
    """File and line that are being executed so many calls above the caller."""
    frame = sys._getframe(above + 1)
    return frame.f_code.co_filename, frame.f_lineno


def _inline(name: str, arguments: Mapping[str, Any]) -> Expression[Any]:
    """An inline node, built by the caller of the caller."""
    from marin_dsl.expression.inline import INLINE
    from marin_dsl.operator.signature import WrongCall

    origin = caller(2)
    try:
        return Expression.apply(INLINE[name], arguments, origin=origin)
    except Unencodable as error:
        raise WrongCall(f"{origin[0]}:{origin[1]}: {name} of an expression: {error}") from None


def _binary(name: str, reflected: bool = False) -> Any:
    def method(self: Expression[Any], other: Any) -> Expression[Any]:
        left, right = (other, self) if reflected else (self, other)
        return _inline(name, {"left": left, "right": right})

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Expression, f"__{_name}__", _binary(_name))
    setattr(Expression, f"__r{_name}__", _binary(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Expression, f"__{_name}__", _binary(_name))
for _name in ("neg", "abs"):
    setattr(Expression, f"__{_name}__", lambda self, _name=_name: _inline(_name, {"value": self}))
