"""From one function to everything of the project that it reaches, as a graph of definitions and values."""

import builtins
import functools
import hashlib
import importlib
import importlib.util
import reprlib
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from .annotated import Annotated, Definition
from .fields import field_values
from .graph import Node
from .normal_form import NormalForm, Outer, normal_form
from .scopes import Imported
from .source import Source, bytecode_form, read_source
from .territory import Territory, importable, public_name
from .witness import ABSENT, Witness, content

Part = str | bytes | Node
_PLACE_OF_A_MODULE = {
    "__name__",
    "__file__",
    "__package__",
    "__spec__",
    "__loader__",
    "__path__",
    "__doc__",
    "__cached__",
}
_SEES_NOT_THROUGH = {"eval", "exec", "compile", "__import__", "globals", "import_module", "run_path", "run_module"}
ATOMS = (type(None), bool, int, float, complex, str, bytes)


@attrs.frozen
class Excluded:
    """What does not count for one operator: objects by identity, modules with what is in them, and names."""

    objects: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, excludes: Iterable[object]) -> "Excluded":
        """Sort what a user listed; a string is a qualified name (`package.module.NAME`).

        Raises:
            TypeError: a plain value is excluded, which has no identity of its own.
        """
        every = list(excludes)
        for value in every:
            if isinstance(value, ATOMS) and not isinstance(value, str):
                raise TypeError(
                    f"excludes= was given {value!r}: it takes functions, classes, modules and other objects that the "
                    "code names; exclude a number or a constant by its qualified name, such as 'package.module.NAME'"
                )
        names = {v for v in every if isinstance(v, str)} | {
            v.__name__ for v in every if isinstance(v, types.ModuleType)
        }
        return cls(frozenset(id(v) for v in every if not isinstance(v, str)), frozenset(names))

    def holds(self, value: object, where: str) -> bool:
        """Whether a value reached under the name `where` does not count."""
        defined_in = getattr(value, "__module__", None) if isinstance(value, types.FunctionType | type) else None
        return id(value) in self.objects or where in self.names or defined_in in self.names


@attrs.define(eq=False)
class Exploration:
    """One walk. Work waits in a queue, so the depth of a project is not bounded by the interpreter's stack.

    Attributes:
        territory: what belongs to the project.
        encode: canonical bytes of a plain value; raises TypeError for what has none.
        describe: what a value consists of, as the content of its node.
        listing: source text by qualified name of what was met.
        opaque: what could not be seen, in sentences.
        by_type: types by place of values of which nothing else counts.
        witness: all that was read.
        standing: what counts by an identity of its own, such as operators with a version.
    """

    territory: Territory
    encode: Callable[[object], bytes]
    describe: "Callable[[Exploration, object, str], Iterable[Part]]"
    excluded: Excluded = Excluded()
    listing: dict[str, str] = attrs.field(factory=dict)
    opaque: dict[str, None] = attrs.field(factory=dict)
    by_type: dict[str, str] = attrs.field(factory=dict)
    witness: Witness = attrs.field(factory=Witness)
    standing: dict[int, object] = attrs.field(factory=dict)
    _nodes: dict[tuple[int, Excluded, str], Node] = attrs.field(factory=dict)
    _queue: list[tuple[object, str, Excluded, Node]] = attrs.field(factory=list)
    _changing: tuple[list[tuple[int, str]], list[str], list[object]] = attrs.field(factory=lambda: ([], [], []))
    _alive: list[object] = attrs.field(factory=list)
    _annotating: list[tuple[type, Excluded]] = attrs.field(factory=list)
    _sources: dict[str, Source | None] = attrs.field(factory=dict)

    def node(self, value: object, where: str, excluded: Excluded | None = None) -> Node:
        """The node of a value or definition, which is described later; `where` names it for people."""
        excluded = self.excluded if excluded is None else excluded
        if excluded.holds(value, where):
            return Node().fill([b"excluded"])
        key = id(value), excluded, where if isinstance(value, ATOMS) else ""
        if key not in self._nodes:
            self._nodes[key] = Node()
            self._alive.append(value)  # an id means something only as long as its object lives
            self._queue.append((value, where, excluded, self._nodes[key]))
        return self._nodes[key]

    def walk(self) -> list[Node]:
        """Describe everything that waits, and what that leads to; then what only annotations lead to.

        Returns:
            The classes that nothing but annotations names, in no order: an annotation of a class that the code names
            anyway changes nothing.
        """
        only_annotated: list[Node] = []
        while self._queue or self._annotating:
            self._describe_queue()
            brought, self._annotating = self._annotating, []
            unseen = {(id(kind), excluded): (kind, excluded) for kind, excluded in brought}
            only_annotated += [
                self.node(kind, f"{kind.__module__}.{kind.__qualname__}", excluded)
                for key, (kind, excluded) in unseen.items()
                if (*key, "") not in self._nodes and not excluded.holds(kind, f"{kind.__module__}.{kind.__qualname__}")
            ]
        self.witness.forget(*self._changing)
        return only_annotated

    def _describe_queue(self) -> None:
        while self._queue:
            value, where, self.excluded, node = self._queue.pop()
            node.fill(self.describe(self, value, where))
            if isinstance(value, types.FunctionType):
                self.witness.value(value)

    def note(self, sentence: str) -> None:
        """Remember something that could not be seen."""
        self.opaque[sentence] = None

    def note_type_alone(self, where: str, kind: str) -> None:
        """Remember a value of which nothing but its type counts."""
        self.by_type[where] = kind
        self.note(f"{where} is a {kind}, which has no encoding: only its type counts")

    def annotate(self, kinds: Iterable[type]) -> None:
        """Remember classes of the project that annotations name, for what their methods do."""
        self._annotating.extend((kind, self.excluded) for kind in kinds)

    def show(self, name: str, text: str) -> None:
        """Remember a definition's text for people; a name met twice with two texts is numbered."""
        number, free = 1, name
        while self.listing.setdefault(free, text) != text:
            number, free = number + 1, f"{name} ({number + 1})"

    def show_constant(self, name: str, value: object, encoded: bytes) -> None:
        """Remember a constant for people: shortened, with a digest where the rest is left out."""
        short = _readable.repr(value)
        cut = f"  # sha256:{hashlib.sha256(encoded).hexdigest()[:12]}" if "..." in short else ""
        self.show(name, f"{name.rpartition('.')[2]} = {short}{cut}\n")

    def show_object(self, name: str, value: object) -> None:
        """Remember what another maker's object prints as, if that says more than where it lies in memory."""
        short = _readable.repr(value) if ":" not in name else ""
        if short and " at 0x" not in short and "\n" not in short:
            self.show(name, f"{name.rpartition('.')[2]} = {short}\n")

    # ---- functions

    def function(self, function: types.FunctionType) -> Iterable[Part]:
        """The content of a function of the project: normal form, what it names, defaults."""
        code, name = function.__code__, name_of(function)
        source, definition = self._definition(function)
        form = self._form(function, name, source, definition)
        self.annotate(self.annotated.of_function(function, definition, source.only_for_checkers if source else {}))
        for hint in form.hints:
            self.note(f"{name}: {hint}")
        yield from (b"function", form.text)
        self._leave_changing(form, function, name)
        for reference in form.references:
            yield self._resolve(reference, function, name)
        if "__class__" in code.co_freevars:
            yield self._resolve(Outer("__class__"), function, name)
        for position, default in enumerate(function.__defaults__ or ()):
            yield self.node(default, f"{name}: default {position}")
        for keyword, default in sorted((function.__kwdefaults__ or {}).items()):
            yield from (keyword, self.node(default, f"{name}: default of {keyword}"))

    def _definition(self, function: types.FunctionType) -> tuple[Source | None, Definition | None]:
        code = function.__code__
        if code.co_filename not in self._sources:
            self._sources[code.co_filename] = read_source(code, function.__globals__)
        source = self._sources[code.co_filename]
        return source, source.find(code) if source else None

    def _form(
        self, function: types.FunctionType, name: str, source: Source | None, definition: Definition | None
    ) -> NormalForm:
        code = function.__code__
        if definition is None or source is None:
            self.note(f"{name}: {_why_not(source, code)}; its bytecode counts instead, which changes between Pythons")
            self.show(name, f"# no source: bytecode {hashlib.sha256(code.co_code).hexdigest()[:12]}\n")
            return bytecode_form(code)
        self.show(name, source.excerpt(definition))
        return _normal_form(definition)

    # ---- names

    def _resolve(self, reference: Outer | Imported, function: types.FunctionType, name: str) -> Node:
        if isinstance(reference, Imported):
            return self._imported(reference, function, name)
        value, where = self._look_up(reference, function, name)
        if value is not ABSENT:
            return self._follow(value, reference.attributes, where, name)
        if reference.name in _PLACE_OF_A_MODULE:
            return Node().fill([b"of the module", reference.name, *reference.attributes])
        if hasattr(builtins, reference.name):
            self._warn_of((reference.name,), name)
            return Node().fill([b"builtin", reference.name, *reference.attributes])
        self.note(f"{name}: the name {reference.name} has no value yet")
        return Node().fill([b"unbound", reference.name, *reference.attributes])

    def _leave_changing(self, form: NormalForm, function: types.FunctionType, name: str) -> None:
        """Note what the function changes while it runs: that is no sign of another code."""
        names, attributes, values = self._changing
        attributes.extend(form.sets)
        for reference in form.changes:
            if reference.is_global and not reference.attributes:
                names.append((id(function.__globals__), reference.name))
            value, _ = self._look_up(reference, function, name)
            for attribute in reference.attributes:
                value = getattr(value, attribute, ABSENT)
            values.append(value)

    def _look_up(self, reference: Outer, function: types.FunctionType, name: str) -> tuple[object, str]:
        free, scope = function.__code__.co_freevars, function.__globals__
        for spelled in (reference.name, _mangled(reference.name, function)):
            if spelled in free and not reference.is_global:
                cell = (function.__closure__ or ())[free.index(spelled)]
                self.witness.cell(cell)
                return content(cell), f"{name}.<closure>.{spelled}"
            self.witness.name(scope, spelled)  # also that it is not there: it may be defined later
            if spelled in scope and spelled not in _PLACE_OF_A_MODULE:
                return scope[spelled], f"{scope.get('__name__')}.{spelled}"
        return ABSENT, ""

    def _follow(self, value: object, attributes: tuple[str, ...], where: str, name: str) -> Node:
        """Read attributes as far as modules of the project reach; the rest is left to what was reached."""
        while isinstance(value, types.ModuleType) and self.territory.holds_module(value.__name__):
            if not attributes or self.excluded.holds(value, value.__name__):
                break
            if attributes[0] in _PLACE_OF_A_MODULE:
                return Node().fill([b"of the module", *attributes])
            attribute, *rest = attributes
            where, value, attributes = f"{value.__name__}.{attribute}", self._member(value, attribute), tuple(rest)
        if value is ABSENT:
            self.note(f"{name}: there is no {where}")
            return Node().fill([b"missing", where.rpartition(".")[2], *attributes])
        if isinstance(value, types.ModuleType) and not self.territory.holds_module(value.__name__):
            self._warn_of(attributes, name)
            return Node().fill([b"foreign", public_name(value.__name__, ".".join(attributes))])
        self._warn_of((getattr(value, "__name__", ""),) if importable(value) else (), name)
        self._watch(value)
        reached = self.node(value, where)
        if attributes and isinstance(value, types.FunctionType) and attributes[0] in vars(value):
            held = self.node(vars(value)[attributes[0]], f"{where}.{attributes[0]}")
            return Node().fill([b"attributes", *attributes, reached, held])
        return Node().fill([b"attributes", *attributes, reached]) if attributes else reached

    @functools.cached_property
    def annotated(self) -> Annotated:
        """Finds the classes that annotations name."""
        return Annotated(self.territory, self.witness, self._imported_for_checkers)

    def _imported_for_checkers(self, wanted: Imported, package: str) -> object:
        try:
            module = importlib.util.resolve_name("." * wanted.level + wanted.module, package)
            if not self.territory.holds_module(module):
                return None
            value = importlib.import_module(module)
        except Exception as error:  # the project's code ran, and may raise anything
            self.note(f"cannot import {wanted.module or '.'}, which annotations name ({type(error).__name__}: {error})")
            return ABSENT
        self.witness.name(sys.modules, module)
        return self._member(value, wanted.name) if wanted.name else value

    def _imported(self, wanted: Imported, function: types.FunctionType, name: str) -> Node:
        package = function.__globals__.get("__package__") or function.__globals__.get("__name__") or ""
        try:
            module = importlib.util.resolve_name("." * wanted.level + wanted.module, package)
            asked = [wanted.name] if wanted.name else []
            if not self.territory.holds_module(module):
                self._warn_of((*asked, *wanted.attributes), name)
                return Node().fill([b"foreign", public_name(module, ".".join([*asked, *wanted.attributes]))])
            value: Any = importlib.import_module(module)
        except Exception as error:  # the project's code ran, and may raise anything
            self.note(f"{name}: cannot import {wanted.module or '.'} to see it ({type(error).__name__}: {error})")
            return Node().fill([b"not importable", wanted.module, wanted.name or "", *wanted.attributes])
        attributes = (*asked, *wanted.attributes)
        self.witness.name(sys.modules, module)
        value = self._member(value, asked[0]) if asked else value
        if isinstance(value, types.ModuleType) and wanted.is_statement:
            return Node().fill([b"module of the project"])
        return self._follow(value, wanted.attributes, f"{module}.{'.'.join(attributes)}", name)

    def _watch(self, value: object) -> None:
        """See later whether a constant was changed in place."""
        fields = None if isinstance(value, type) else field_values(value)
        if isinstance(value, types.SimpleNamespace):
            fields = vars(value)
        if fields is None:
            self.witness.value(value)
        else:
            self.witness.fields(value, fields)

    def _member(self, module: types.ModuleType, name: str) -> object:
        found = _member(module, name)
        self.witness.attribute(vars(module), name)
        return found

    def foreign_name(self, value: object) -> str | None:
        """The name by which third-party code can be imported; None if it only claims a name of the project's."""
        return None if self.territory.holds_module(getattr(value, "__module__", None) or "") else importable(value)

    def _warn_of(self, attributes: tuple[str, ...], name: str) -> None:
        for attribute in attributes[-1:]:
            if attribute in _SEES_NOT_THROUGH:
                self.note(f"{name}: {attribute}() reaches code by text or name; what it reaches is not seen")


_readable = reprlib.Repr()
_readable.maxstring = _readable.maxother = _readable.maxlong = 200
_readable.maxlist = _readable.maxtuple = _readable.maxdict = _readable.maxset = _readable.maxfrozenset = 20


def name_of(function: types.FunctionType) -> str:
    """Where a function's code was written: not what `functools.wraps` made it claim."""
    return f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"


@functools.lru_cache(maxsize=4096)
def _normal_form(definition: Definition) -> NormalForm:
    return normal_form(definition)


def _why_not(source: Source | None, code: types.CodeType) -> str:
    if source is None:
        return f"there is no source ({code.co_filename})"
    return f"{code.co_filename} does not hold the code that is loaded (edited since, or rewritten on import)"


def _mangled(name: str, function: types.FunctionType) -> str:
    owner = function.__code__.co_qualname.rpartition(".")[0].rpartition(".")[2].lstrip("_")
    return f"_{owner}{name}" if name.startswith("__") and not name.endswith("__") else name


def _member(module: types.ModuleType, name: str) -> object:
    """An attribute of a module, or the submodule of that name even if nobody imported it yet."""
    found = getattr(module, name, ABSENT)
    if found is ABSENT and hasattr(module, "__path__"):
        full = f"{module.__name__}.{name}"
        try:
            return importlib.import_module(full) if importlib.util.find_spec(full) else ABSENT
        except Exception:  # the project's code ran, and may raise anything
            return ABSENT
    return found
