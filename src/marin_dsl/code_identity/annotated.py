"""The classes of the project that annotations name: an argument or a field of such a class brings its methods along.

Annotations themselves do not count: which classes they name does, for `score.total()` under `score: Score` runs what
`Score` says, and nothing else in the code names it.
"""

import ast
import builtins
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from .scopes import Imported, imports
from .territory import Territory
from .witness import ABSENT, Witness, content

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FORWARD = (str, typing.ForwardRef)
# What forms and variables of types are made of; which they have depends on their make.
_PARTS = ("__origin__", "__args__", "__bound__", "__constraints__", "__supertype__", "__value__")


@attrs.frozen
class Annotated:
    """Finds classes of the project in annotations.

    Attributes:
        territory: what belongs to the project.
        witness: remembers what each name meant.
        imported: what an import names, given the package that it stands in; None if that is not the project's, ABSENT
            if there is no such thing.
    """

    territory: Territory
    witness: Witness
    imported: Callable[[Imported, str], object]

    def of_function(
        self, function: types.FunctionType, definition: Definition | None, only_for_checkers: Mapping[str, Imported]
    ) -> Iterator[type]:
        """The classes that a function's annotations name: of parameters, of its result, of its variables.

        Names are looked up as they are now (a notebook may have defined the class anew since), and where that fails,
        as of a class in the function around, the annotations are asked for as they were.
        """
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = _names_in(definition) if definition is not None else None
        found = [self._named(name, function.__globals__, cells, only_for_checkers) for name in names or ()]
        yield from self._in(found, function.__globals__)
        if names is None or any(value is ABSENT for value in found):
            yield from self._in(list(_annotations(function).values()), function.__globals__)

    def of_class(self, kind: type) -> Iterator[type]:
        """The classes that the annotations in a class's body name: of its fields."""
        declared = [getattr(field, "type", None) for field in kind.__dict__.get("__attrs_attrs__", ())]
        namespace = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
        yield from self._in([*_annotations(kind).values(), *declared], namespace)

    def _in(self, annotation: object, namespace: Mapping[str, Any]) -> Iterator[type]:
        stack, seen = [annotation], set[int]()
        alive = []  # an id means something only as long as its object lives
        while stack:
            part: Any = stack.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            alive.append(part)
            if isinstance(part, list | tuple):
                stack.extend(part)
            elif isinstance(part, _FORWARD):
                text = part if isinstance(part, str) else part.__forward_arg__
                stack.extend(self._named(name, namespace, {}, {}) for name in _names_of_text(text))
            elif isinstance(part, type) and not isinstance(part, types.GenericAlias):
                if self.territory.holds_class(part):
                    yield self._as_it_is_now(part)
            elif _is_of_types(part):
                stack.extend(_parts_of(part))

    def _named(
        self,
        name: tuple[str, ...],
        namespace: Mapping[str, Any],
        cells: Mapping[str, types.CellType],
        only_for_checkers: Mapping[str, Imported],
    ) -> object:
        """What a dotted name means: `ABSENT` if nothing, None for what is built in."""
        first, *attributes = name
        if first in cells:
            self.witness.cell(cells[first])
            value = content(cells[first])
        elif first in namespace:
            self.witness.name(namespace, first)
            value = namespace[first]
        elif first in only_for_checkers:
            package = namespace.get("__package__") or namespace.get("__name__") or ""
            value = self.imported(only_for_checkers[first], package)
        else:
            return None if hasattr(builtins, first) else ABSENT
        for attribute in attributes:
            value = getattr(value, attribute, ABSENT)
        return value

    def _as_it_is_now(self, kind: type) -> type:
        """The class of this name in its module: another one once a notebook's cell was run anew."""
        module = sys.modules.get(kind.__module__)
        first, *rest = kind.__qualname__.split(".")
        if module is None or first not in vars(module):
            return kind
        self.witness.name(vars(module), first)
        now = vars(module)[first]
        for part in rest:
            now = getattr(now, part, None)
        return now if isinstance(now, type) else kind


def imports_for_checkers(tree: ast.Module) -> dict[str, Imported]:
    """What a module imports under `if TYPE_CHECKING:`, by the name it gives to it."""
    found: dict[str, Imported] = {}
    for statement in tree.body:
        if isinstance(statement, ast.If) and _dotted(statement.test)[-1:] == ("TYPE_CHECKING",):
            for part in statement.body:
                if isinstance(part, ast.Import | ast.ImportFrom):
                    found |= {name: meaning for name, _, meaning in imports(part)}
    return found


@functools.lru_cache(maxsize=4096)
def _names_in(definition: Definition) -> tuple[tuple[str, ...], ...]:
    """The dotted names in all annotations of a definition, those of functions inside included."""
    annotations: list[ast.expr | None] = []
    for part in ast.walk(definition):
        if isinstance(part, ast.arg | ast.AnnAssign):
            annotations.append(part.annotation)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            annotations.append(part.returns)
    return tuple(dict.fromkeys(name for node in annotations if node is not None for name in _names(node)))


def _names(node: ast.expr) -> Iterator[tuple[str, ...]]:
    """The dotted names in an annotation, texts in it read as annotations too."""
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from _names_of_text(part.value)
        elif dotted := _dotted(part):
            yield dotted
        else:
            stack.extend(ast.iter_child_nodes(part))


def _names_of_text(text: str) -> Iterable[tuple[str, ...]]:
    try:
        return list(_names(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, RecursionError):
        return ()  # a `Literal`, or a shape of jaxtyping


def _dotted(node: ast.AST) -> tuple[str, ...]:
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else ()


def _annotations(owner: Any) -> Mapping[str, object]:
    try:
        return inspect.get_annotations(owner)
    except Exception:  # later Pythons compute them now, and the project's code may raise anything
        return {}


def _is_of_types(value: object) -> bool:
    """Whether a value is made to annotate with: another's object may have attributes of any name."""
    made_of = type(value).__module__
    return isinstance(value, types.GenericAlias | types.UnionType) or made_of in ("typing", "typing_extensions")


def _parts_of(value: object) -> Iterator[object]:
    for name in _PARTS:
        try:
            yield getattr(value, name, None)
        except Exception:  # an alias is only now computed, and the project's code may raise anything
            continue
