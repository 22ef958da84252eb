"""From a function that is loaded to the syntax it was compiled from.

The text on disk may be newer than the function: it is believed only where compiling it gives the very code that is
loaded. Texts are read anew at every call (an edit within one tick of the clock leaves no trace in the modification
time); parses are remembered by content.
"""

import ast
import dis
import functools
import linecache
import os
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from .annotated import imports_for_checkers
from .normal_form import NormalForm, Outer, constant, framed
from .scopes import Imported

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@attrs.frozen(eq=False)
class Source:
    """A module's text with the definitions in it, by the code they compile to, and its imports for type checkers."""

    text: str
    lines: list[str]
    definitions: dict[object, list[tuple[types.CodeType, Definition]]]
    only_for_checkers: dict[str, Imported]

    def find(self, code: types.CodeType) -> Definition | None:
        """The definition that compiles to exactly `code`, or None; the nearest one if several do."""
        same = self.definitions.get(_essence(code), ())
        return min(same, key=lambda pair: _distance(pair[0], code))[1] if same else None

    def excerpt(self, node: Definition) -> str:
        """The source lines of a definition with its decorators, dedented."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return textwrap.dedent("".join(self.lines[first - 1 : node.end_lineno]))


def read_source(code: types.CodeType, namespace: Mapping[str, object]) -> Source | None:
    """The text `code` was compiled from as it is now (file, notebook cell, archive), parsed; None if there is none."""
    text = _text(code.co_filename, namespace)
    try:
        return parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _text(filename: str, namespace: Mapping[str, object]) -> str:
    if os.path.isfile(filename):
        try:
            with tokenize.open(filename) as file:
                return file.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            return ""
    return "".join(linecache.getlines(filename, dict(namespace)))


@functools.lru_cache(maxsize=512)
def parse(text: str) -> Source:
    """Parse and compile a module's text.

    Raises:
        SyntaxError: if it is not Python of this version.
    """
    tree = ast.parse(text)
    nodes: dict[tuple[str, int], list[Definition]] = {}
    for found in ast.walk(tree):
        if isinstance(found, Definition):
            nodes.setdefault(_place(found), []).append(found)
    definitions: dict[object, list[tuple[types.CodeType, Definition]]] = {}
    for code in _codes(compile(tree, "<source>", "exec", dont_inherit=True)):
        node = _node_of(code, nodes.get((code.co_name, code.co_firstlineno), ()))
        if node is not None:
            definitions.setdefault(_essence(code), []).append((code, node))
    return Source(text, text.splitlines(keepends=True), definitions, imports_for_checkers(tree))


def _place(node: Definition) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes(inner)


def _node_of(code: types.CodeType, candidates: "list[Definition] | tuple[()]") -> Definition | None:
    if len(candidates) <= 1:
        return candidates[0] if candidates else None
    lambdas = [node for node in candidates if isinstance(node, ast.Lambda)]
    # several in a line: the smallest body around all instructions (columns 0 to 0 mean that there is no place)
    places: list[Any] = [
        (p[0], p[2], p[1], p[3]) for p in code.co_positions() if None not in p and (p[2], p[3]) != (0, 0)
    ]
    if not places:
        return next((node for node in lambdas if _alone(node) == _literally(code)), None)
    start, end = min(place[:2] for place in places), max(place[2:] for place in places)
    around = [node for node in lambdas if _contains(node.body, start, end)]
    return min(around, key=lambda node: _extent(node.body), default=None)


def _alone(node: ast.Lambda) -> tuple:
    return _literally(next(_codes(compile(ast.Expression(node), "<source>", "eval", dont_inherit=True))))


def _literally(code: types.CodeType) -> tuple:
    return code.co_code, tuple(map(constant, code.co_consts)), code.co_varnames


def _contains(node: Any, start: tuple[int, int], end: tuple[int, int]) -> bool:
    return (node.lineno, node.col_offset) <= start and end <= (node.end_lineno, node.end_col_offset)


def _extent(node: Any) -> tuple[int, int]:
    return node.end_lineno - node.lineno, node.end_col_offset - node.col_offset


@functools.lru_cache(maxsize=8192)
def _essence(code: types.CodeType) -> tuple:
    """What two code objects must share to be compiled from one text: everything but places."""
    literals = tuple(_essence(c) if isinstance(c, types.CodeType) else constant(c) for c in code.co_consts)
    variables = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return code.co_name, code.co_code, literals, variables, arguments, code.co_exceptiontable


def _distance(compiled: types.CodeType, loaded: types.CodeType) -> tuple[int, bool]:
    apart = abs(compiled.co_firstlineno - loaded.co_firstlineno)
    return apart, list(compiled.co_positions()) != list(loaded.co_positions())


def bytecode_form(code: types.CodeType) -> NormalForm:
    """What stands in for the normal form where there is no text: instructions, constants and names."""
    names = dict.fromkeys(_outer_names(code))
    every = [*names, *(name for name in code.co_freevars if name not in names)]
    text = b"".join([b"bytecode", _written(code), b"@" * len(every)])
    return NormalForm(text, tuple(Outer(name) for name in every), ())


def _outer_names(code: types.CodeType) -> Iterator[str]:
    for part in [code, *_codes(code)]:
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield instruction.argval


def _written(code: types.CodeType) -> bytes:
    literals = [_written(c) if isinstance(c, types.CodeType) else constant(c) for c in code.co_consts]
    names = repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    parts: list[str | bytes] = [code.co_code, names, code.co_exceptiontable, *literals]
    return framed(b"".join(map(framed, parts)))
