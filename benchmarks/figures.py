"""The figures of the code itself, held to a budget: sizes of modules and functions, documentation, tests against code.

Prints a table; exits with 1 when a figure is over its budget.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ("src/marin_dsl", "src/marin_models", "src/marin_kernels", "library", "gallery")


def modules(*folders: str) -> list[Path]:
    """The Python files below some folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines(path: Path) -> int:
    """Lines that are neither blank nor a comment."""
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def functions(paths: list[Path]) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function and method."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether every parameter of a public function has a type (its own instance aside)."""
    given = function.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return all(parameter.annotation is not None or parameter.arg in ("self", "cls", "_") for parameter in parameters)


def public(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public functions and methods of a module."""
    found: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for node in ast.parse(path.read_text()).body:
        for item in [node, *(node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [])]:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
                found.append(item)
    return found


def percentile(values: list[int], share: float) -> int:
    """The smallest value that a share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    """Print the table; the exit status."""
    code, tests = modules(*CODE), modules("tests")
    sizes = [len(path.read_text().splitlines()) for path in code]
    bodies = [length(function) for _, function in functions(code)]
    openly = [function for path in code for function in public(path)]
    ratio = sum(map(lines, tests)) / sum(map(lines, code))
    rows: list[tuple[str, float, str, bool]] = [
        ("modules", len(code), "", True),
        ("lines of a module, p90", percentile(sizes, 0.9), "≤ 400", percentile(sizes, 0.9) <= 400),
        ("lines of a module, most", max(sizes), "≤ 600", max(sizes) <= 600),
        ("lines of a function, median", statistics.median(bodies), "≤ 8", statistics.median(bodies) <= 8),
        ("lines of a function, p90", percentile(bodies, 0.9), "≤ 35", percentile(bodies, 0.9) <= 35),
        ("public functions annotated", sum(map(annotated, openly)) / len(openly), "1.0", all(map(annotated, openly))),
        ("lines of tests to lines of code", round(ratio, 2), "≥ 1.5 (goal)", True),
    ]
    for name, value, budget, kept in rows:
        print(f"{name:<34}{value:>8.4g}   {budget:<14}{'' if kept else 'OVER BUDGET'}")
    return 0 if all(kept for *_, kept in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
