"""Which name of a function means what: scopes of one definition, found in its syntax tree alone.

Only the standard library is used, and nothing that differs between the Pythons supported (`symtable` reports
comprehensions and type parameters differently from version to version).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_READS_LOCALS_BY_NAME = {"locals", "eval", "exec"}


class Imported(NamedTuple):
    """A name bound by an import inside a function body, with the attributes read from it; or the import itself."""

    module: str
    level: int
    name: str | None
    attributes: tuple[str, ...] = ()
    is_statement: bool = False


@dataclass(eq=False)
class Scope:
    """The names one function, class body or comprehension binds."""

    kind: str
    parent: "Scope | None" = None
    parameters: set[str] = field(default_factory=set)
    bound: dict[str, list[Imported | None]] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)

    def bind(self, name: str, source: Imported | None = None) -> None:
        """Note one binding of `name`, by an import if `source` says so."""
        if source is None or source not in self.bound.get(name, ()):
            self.bound.setdefault(name, []).append(source)

    def owner(self, name: str) -> "tuple[Scope | None, bool]":
        """The scope `name` belongs to when read here, or None; and whether it was declared global."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or scope.kind != "class":
                if name in scope.declared_global:
                    return None, True
                if name in scope.parameters or (name in scope.bound and name not in scope.declared_nonlocal):
                    return scope, False
            scope = scope.parent
        return None, False


@dataclass(eq=False)
class Scopes:
    """All scopes of one definition, by the node that opens them; `by_name`: its locals can be read as strings."""

    of_node: dict[ast.AST, Scope] = field(default_factory=dict)
    by_name: bool = False


_Visit = tuple[ast.AST, Scope]


def scopes_of(definition: Any) -> Scopes:
    """The scopes of a function definition or lambda and of everything nested in it."""
    found = Scopes()
    stack: list[_Visit] = [(child, scope) for child, scope in _inside(definition, None, found)]
    while stack:
        node, scope = stack.pop()
        _bind(node, scope)
        found.by_name |= _reads_locals_by_name(node)
        stack.extend(_children(node, scope, found))
    return found


def parameters(arguments: ast.arguments) -> list[str]:
    """The names of all parameters, in order."""
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [argument.arg for argument in every if argument is not None]


def _inside(definition: Any, parent: Scope | None, found: Scopes) -> list[_Visit]:
    scope = Scope("class" if isinstance(definition, ast.ClassDef) else "function", parent)
    found.of_node[definition] = scope
    if not isinstance(definition, ast.ClassDef):
        scope.parameters.update(parameters(definition.args))
    for parameter in getattr(definition, "type_params", ()):
        scope.bind(parameter.name)
    body = definition.body if isinstance(definition.body, list) else [definition.body]
    return [(child, scope) for child in body]


def _children(node: ast.AST, scope: Scope, found: Scopes) -> Iterator[_Visit]:
    if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        yield from ((child, scope) for child in evaluated_outside(node))
        yield from _inside(node, scope, found)
    elif isinstance(node, COMPREHENSIONS):
        inner = found.of_node[node] = Scope("comprehension", scope)
        yield node.generators[0].iter, scope
        yield from ((child, inner) for child in _evaluated_inside(node))
    elif isinstance(node, ast.NamedExpr):
        yield node.value, scope
    else:
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "type_params"):
                values = value if isinstance(value, list) else [value]
                yield from ((child, scope) for child in values if isinstance(child, ast.AST))


def evaluated_outside(node: Any) -> list[ast.expr]:
    """The parts of a nested definition evaluated in the scope around it: decorators, bases, defaults."""
    parts = list(getattr(node, "decorator_list", ()))
    if isinstance(node, ast.ClassDef):
        return parts + node.bases + [keyword.value for keyword in node.keywords]
    return parts + node.args.defaults + [default for default in node.args.kw_defaults if default is not None]


def _evaluated_inside(node: Any) -> Iterator[ast.AST]:
    yield from ([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
    for position, generator in enumerate(node.generators):
        yield from [generator.target, *generator.ifs, *([generator.iter] if position else [])]


def _bind(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            scope.bind(name)
        case ast.NamedExpr(target=ast.Name(id=name)):
            _around_comprehensions(scope).bind(name)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bind(name)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            scope.bind(name)
        case ast.MatchMapping(rest=str(name)):
            scope.bind(name)
        case ast.Import() | ast.ImportFrom():
            for name, _, source in imports(node):
                scope.bind(name, source)
        case ast.Global(names=names):
            scope.declared_global.update(names)
        case ast.Nonlocal(names=names):
            scope.declared_nonlocal.update(names)


def _around_comprehensions(scope: Scope) -> Scope:
    while scope.kind == "comprehension" and scope.parent is not None:
        scope = scope.parent
    return scope


def imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported, Imported]]:
    """For each name of an import statement: the name bound, what the statement loads, what the name then means."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            meaning = Imported(node.module or "", node.level, alias.name)
            yield alias.asname or alias.name, meaning._replace(is_statement=True), meaning
        else:
            top = alias.name.partition(".")[0]
            meaning = Imported(alias.name if alias.asname else top, 0, None)
            yield alias.asname or top, Imported(alias.name, 0, None, (), True), meaning


def _reads_locals_by_name(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="vars" | "dir"), args=[], keywords=[]):
            return True
        case ast.Name(id=name):
            return name in _READS_LOCALS_BY_NAME
    return False
