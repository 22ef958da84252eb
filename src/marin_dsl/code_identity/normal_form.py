"""The normal form of a function's syntax: without layout, comments, annotations and the names of local variables.

`ast.dump` changes from one Python to the next; this writer does not. It uses only the standard library, so that any
Python can be asked to confirm it. What the function names outside itself is not written but listed, in order of
occurrence, to be looked up when the function is at hand.
"""

import ast
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from .scopes import Imported, Scope, evaluated_outside, imports, parameters, scopes_of

_LEFT_OUT = {"ctx", "type_comment", "kind", "type_params", "annotation", "returns"}
_WITHOUT_EFFECT = (ast.Pass, ast.Global, ast.Nonlocal)
_IN_PLACE = {
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "fill", "insert", "move_to_end", "pop",
    "popitem", "popleft", "put", "remove", "reverse", "rotate", "setdefault", "sort", "update",
}  # fmt: skip
"""Methods of containers and arrays that change them."""
_BY_STRING = {"getattr", "setattr", "delattr", "hasattr"}


class Outer(NamedTuple):
    """A name that the function does not bind, with the attributes read from it; `is_global` if it was declared so."""

    name: str
    attributes: tuple[str, ...] = ()
    is_global: bool = False


class NormalForm(NamedTuple):
    """A function's text, its outward references (each a `@` in the text) and what may escape the eye.

    Attributes:
        text: the normal form.
        references: what it names outside itself.
        hints: what may escape the eye, in sentences.
        changes: what of that it changes in place, or assigns to, while it runs.
        sets: names of the attributes that it sets, of whatever object.
    """

    text: bytes
    references: tuple[Outer | Imported, ...]
    hints: tuple[str, ...]
    changes: tuple[Outer, ...] = ()
    sets: tuple[str, ...] = ()


_Item = bytes | tuple[ast.AST, Scope]


def normal_form(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> NormalForm:
    """The normal form of one definition; its own name, decorators and default expressions are left to the caller.

    Args:
        definition: the node of a function or lambda, anywhere in a module.

    Returns:
        A form that is equal for two definitions exactly when they differ in layout, comments, docstrings, annotations,
        spelling of literals or names of local variables only. Parameters keep their names, which callers may use.
    """
    writer = _Writer(definition)
    hints, changes, sets = dict.fromkeys(writer.hints), dict.fromkeys(writer.changes), dict.fromkeys(writer.sets)
    return NormalForm(b"".join(writer.out), tuple(writer.references), tuple(hints), tuple(changes), tuple(sets))


def framed(text: str | bytes) -> bytes:
    """Text with its length before it, so that no two sequences of texts run together into the same bytes."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return b"%d:%s" % (len(raw), raw)


def constant(value: object) -> bytes:
    """A literal, typed: `1`, `1.0`, `True` and `"1"` all differ."""
    match value:
        case bool() | None:
            return repr(value).encode()
        case int():
            return b"i" + hex(value).encode() + b";"
        case float():
            return b"f" + struct.pack(">d", value)
        case complex():
            return b"c" + struct.pack(">dd", value.real, value.imag)
        case str():
            return b"s" + framed(value)
        case bytes():
            return b"b" + framed(value)
        case tuple():
            return b"t(" + b"".join(map(constant, value)) + b")"
        case frozenset():
            return b"z(" + b"".join(sorted(map(constant, value))) + b")"
    return b"." + framed(repr(value))


class _Writer:
    """Writes one definition. An explicit stack: expressions nest deeper than Python calls do."""

    def __init__(self, definition: Any) -> None:
        self.scopes = scopes_of(definition)
        self.out: list[bytes] = []
        self.references: list[Outer | Imported] = []
        self.hints: list[str] = []
        self.changes: list[Outer] = []
        self.sets: list[str] = []
        self.numbers: dict[tuple[Scope, str], int] = {}
        scope = self.scopes.of_node[definition]
        kind = type(definition).__name__.encode()
        self._write([b"(", kind, *self._signature(definition.args), *self._body(definition, scope), b")"])

    def _write(self, items: list[_Item]) -> None:
        stack = items[::-1]
        while stack:
            item = stack.pop()
            if isinstance(item, bytes):
                self.out.append(item)
            else:
                node, scope = item
                stack.extend(reversed(getattr(self, "_" + type(node).__name__, self._any)(node, scope)))

    def _any(self, node: ast.AST, scope: Scope) -> list[_Item]:
        items: list[_Item] = [b"(", type(node).__name__.encode()]
        for name, value in ast.iter_fields(node):
            if name not in _LEFT_OUT and value is not None and value != []:
                items += [b".", name.encode(), b" ", *self._value(value, scope)]
        return [*items, b")"]

    def _value(self, value: object, scope: Scope) -> list[_Item]:
        if isinstance(value, ast.AST):
            return [(value, scope)]
        if not isinstance(value, list):
            return [constant(value)]
        if value and isinstance(value[0], ast.stmt):
            return self._block(value, scope)
        items = [item for part in value for item in (self._value(part, scope) if part is not None else [b"-"])]
        return [b"[", *items, b"]"]

    # ---- statements

    def _block(self, statements: list[ast.stmt], scope: Scope) -> list[_Item]:
        kept = [(s, scope) for s in statements if not self._without_effect(s, scope)]
        return [b"{", *kept, b"}"]

    def _without_effect(self, statement: ast.stmt, scope: Scope) -> bool:
        if isinstance(statement, ast.Expr):
            return isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            return scope.kind != "class" and isinstance(statement.target, ast.Name)
        return isinstance(statement, _WITHOUT_EFFECT)

    def _body(self, definition: Any, scope: Scope) -> list[_Item]:
        if isinstance(definition, ast.Lambda):
            return [(definition.body, scope)]
        return self._block(definition.body, scope)

    def _signature(self, arguments: ast.arguments) -> list[bytes]:
        counts = f"{len(arguments.posonlyargs)},{len(arguments.args)},{len(arguments.kwonlyargs)}"
        stars = f",{arguments.vararg is not None:d},{arguments.kwarg is not None:d}"
        return [b"<", (counts + stars).encode(), *(framed(name) for name in parameters(arguments)), b">"]

    def _nested(self, node: Any, scope: Scope) -> list[_Item]:
        which = [bytes(str([d is not None for d in node.args.kw_defaults]), "ascii")] if node.args.kw_defaults else []
        outside: list[_Item] = [b"[", *((part, scope) for part in evaluated_outside(node)), b"]"]
        counts = b"%d,%d" % (len(getattr(node, "decorator_list", ())), len(node.args.defaults))
        inner = self.scopes.of_node[node]
        return [counts, *which, *outside, *self._signature(node.args), *self._body(node, inner), b")"]

    def _FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> list[_Item]:  # noqa: N802
        return [b"(", type(node).__name__.encode(), *self._binding(node.name, scope), *self._nested(node, scope)]

    _AsyncFunctionDef = _FunctionDef

    def _Lambda(self, node: ast.Lambda, scope: Scope) -> list[_Item]:  # noqa: N802
        return [b"(Lambda", *self._nested(node, scope)]

    def _ClassDef(self, node: ast.ClassDef, scope: Scope) -> list[_Item]:  # noqa: N802
        head = [framed(node.name), *self._binding(node.name, scope)]
        keywords = [framed(keyword.arg or "**") for keyword in node.keywords]
        counts = b"%d,%d" % (len(node.decorator_list), len(node.bases))
        outside = [(part, scope) for part in evaluated_outside(node)]
        body = self._block(node.body, self.scopes.of_node[node])
        return [b"(ClassDef", *head, counts, b"[", *keywords, b"]", b"[", *outside, b"]", *body, b")"]

    def _AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> list[_Item]:  # noqa: N802
        if scope.kind == "class":
            return [b"(Field", (node.target, scope), *self._value(node.value or [], scope), b")"]
        if node.value is None:
            return [b"(Expr.value ", (node.target, scope), b")"]
        return [b"(Assign.targets [", (node.target, scope), b"].value ", (node.value, scope), b")"]

    def _Import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> list[_Item]:  # noqa: N802
        items: list[_Item] = [b"(Import"]
        for name, loaded, _ in imports(node):
            items += [*self._binding(name, scope), self._reference(loaded)]
        return [*items, b")"]

    _ImportFrom = _Import

    def _ExceptHandler(self, node: ast.ExceptHandler, scope: Scope) -> list[_Item]:  # noqa: N802
        kind = [(node.type, scope)] if node.type else []
        return [b"(Except", *kind, *self._optional(node.name, scope), *self._block(node.body, scope), b")"]

    def _MatchAs(self, node: ast.MatchAs, scope: Scope) -> list[_Item]:  # noqa: N802
        pattern = [(node.pattern, scope)] if node.pattern else []
        return [b"(MatchAs", *pattern, *self._optional(node.name, scope), b")"]

    def _MatchStar(self, node: ast.MatchStar, scope: Scope) -> list[_Item]:  # noqa: N802
        return [b"(MatchStar", *self._optional(node.name, scope), b")"]

    def _MatchMapping(self, node: ast.MatchMapping, scope: Scope) -> list[_Item]:  # noqa: N802
        pairs = [*self._value(node.keys, scope), *self._value(node.patterns, scope)]
        return [b"(MatchMapping", *pairs, *self._optional(node.rest, scope), b")"]

    # ---- expressions

    def _Constant(self, node: ast.Constant, scope: Scope) -> list[_Item]:  # noqa: N802
        return [constant(node.value)]

    def _JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> list[_Item]:  # noqa: N802
        parts = _joined(node.values)
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return [constant("".join(texts))]
        return [b"(Joined", *self._parts(parts, scope), b")"]

    def _parts(self, parts: list[Any], scope: Scope) -> list[_Item]:
        return [constant(part) if isinstance(part, str) else (part, scope) for part in parts]

    def _FormattedValue(self, node: ast.FormattedValue, scope: Scope) -> list[_Item]:  # noqa: N802
        spec = _joined([node.format_spec]) if node.format_spec else []
        return [b"(Value", b"%d" % node.conversion, (node.value, scope), *self._parts(spec, scope), b")"]

    def _Call(self, node: ast.Call, scope: Scope) -> list[_Item]:  # noqa: N802
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, second, *_]) if name in _BY_STRING:
                if not isinstance(second, ast.Constant):
                    self.hints.append(f"{name}() with a name computed while running: what it reaches is not seen")
        if isinstance(node.func, ast.Attribute) and node.func.attr in _IN_PLACE:
            self._note_change(node.func.value, scope)
        return self._any(node, scope)

    def _Subscript(self, node: ast.Subscript, scope: Scope) -> list[_Item]:  # noqa: N802
        if not isinstance(node.ctx, ast.Load):
            self._note_change(node.value, scope)
        return self._any(node, scope)

    def _note_change(self, target: ast.expr, scope: Scope) -> None:
        """Note what is changed in place, if it is outside of the function: `target` itself, or what it is a part of."""
        attributes: list[str] = []
        while isinstance(target, ast.Attribute | ast.Subscript):
            attributes = [target.attr, *attributes] if isinstance(target, ast.Attribute) else []
            target = target.value
        if isinstance(target, ast.Name):
            outward = self._outward(target.id, scope, tuple(attributes))
            if isinstance(outward, Outer):
                self.changes.append(outward)

    def _NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> list[_Item]:  # noqa: N802
        return [b"(NamedExpr", *self._binding(node.target.id, scope), (node.value, scope), b")"]

    def _comprehension_of(self, node: Any, scope: Scope) -> list[_Item]:
        inner = self.scopes.of_node[node]
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        items: list[_Item] = [b"(", type(node).__name__.encode(), *((part, inner) for part in parts)]
        for position, clause in enumerate(node.generators):
            items += [
                b"(for",
                b"%d" % clause.is_async,
                (clause.target, inner),
                (clause.iter, inner if position else scope),
            ]
            items += [*self._value(clause.ifs, inner), b")"]
        return [*items, b")"]

    _ListComp = _SetComp = _DictComp = _GeneratorExp = _comprehension_of

    # ---- names

    def _Attribute(self, node: ast.Attribute, scope: Scope) -> list[_Item]:  # noqa: N802
        if not isinstance(node.ctx, ast.Load):
            self.sets.append(node.attr)
            self._note_change(node.value, scope)
        chain, root = [node.attr], node.value
        while isinstance(root, ast.Attribute):
            chain.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and isinstance(node.ctx, ast.Load):
            outward = self._outward(root.id, scope, tuple(chain[::-1]))
            if outward is not None:
                return self._read(root.id, scope, outward)
        return self._any(node, scope)

    def _outward(self, name: str, scope: Scope, attributes: tuple[str, ...]) -> Outer | Imported | None:
        owner, is_global = scope.owner(name)
        if owner is None:
            return Outer(name, attributes, is_global)
        sources = owner.bound.get(name, ())
        if owner.kind == "function" and name not in owner.parameters and len(sources) == 1 and sources[0]:
            return sources[0]._replace(attributes=attributes)
        return None

    def _Name(self, node: ast.Name, scope: Scope) -> list[_Item]:  # noqa: N802
        if not isinstance(node.ctx, ast.Load):
            return self._binding(node.id, scope)
        outward = self._outward(node.id, scope, ())
        if outward is not None:
            return self._read(node.id, scope, outward)
        owner, _ = scope.owner(node.id)
        assert owner is not None
        items = self._local(node.id, owner)
        if owner.kind == "class":
            return [*items, self._reference(Outer(node.id))]
        return items + [self._reference(source) for source in owner.bound.get(node.id, ()) if source is not None]

    def _read(self, name: str, scope: Scope, outward: Outer | Imported) -> list[_Item]:
        """What a name means outside; of an import also which local it is, for that may not be bound yet."""
        owner, _ = scope.owner(name)
        return [*([] if owner is None else self._local(name, owner)), self._reference(outward)]

    def _binding(self, name: str, scope: Scope) -> list[_Item]:
        owner, _ = scope.owner(name)
        if owner is None:
            self.hints.append(f"it assigns the global name {name} while running")
            self.changes.append(Outer(name, (), True))
            return [b"$" + framed(name)]
        return self._local(name, owner)

    def _optional(self, name: str | None, scope: Scope) -> list[_Item]:
        return [b"-"] if name is None else self._binding(name, scope)

    def _local(self, name: str, owner: Scope) -> list[_Item]:
        if owner.kind == "class":
            return [b"A" + framed(name)]
        if name in owner.parameters:
            return [b"P" + framed(name)]
        if self.scopes.by_name:
            return [b"N" + framed(name)]
        return [b"L%d;" % self.numbers.setdefault((owner, name), len(self.numbers))]

    def _reference(self, reference: Outer | Imported) -> bytes:
        self.references.append(reference)
        return b"@"


def _joined(values: Iterable[ast.AST]) -> list[Any]:
    """The parts of an f-string with neighbouring texts merged: Pythons differ in how they split them."""
    parts: list[Any] = []
    for value in values:
        for part in _joined(value.values) if isinstance(value, ast.JoinedStr) else [value]:
            text = part.value if isinstance(part, ast.Constant) else part
            if isinstance(text, str) and parts and isinstance(parts[-1], str):
                parts[-1] += text
            elif text != "":
                parts.append(text)
    return parts
