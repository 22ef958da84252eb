"""A plugin for mypy: calls of operators are checked against the function's own parameters.

Where the function takes a `T`, the call takes a `T`, an expression of one, or, for containers, the same container with
expressions among its members. Python's type system has no way to say that of every parameter at once. Switch it on with
`plugins = ["marin_dsl.typing_plugin"]` under `[tool.mypy]`; nothing else imports this module, or mypy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mypy.erasetype import erase_typevars
from mypy.nodes import CallExpr, MemberExpr, MypyFile, NameExpr, TypeInfo
from mypy.plugin import MethodSigContext, Plugin
from mypy.types import (
    AnyType,
    FunctionLike,
    Instance,
    Parameters,
    ProperType,
    TupleType,
    Type,
    UnionType,
    UnpackType,
    get_proper_type,
)

OPERATOR = "marin_dsl.operator.operator.Operator"
EXPRESSION = "marin_dsl.expression.expression.Expression"
GRID = "marin_dsl.nests.GridOf"
CELLS = {"marin_dsl.grids.cells.Cell"}
NESTS = {
    "builtins.list": "marin_dsl.nests.ListOf",
    "builtins.dict": "marin_dsl.nests.DictOf",
    "typing.Mapping": "marin_dsl.nests.MappingOf",
}
"""Protocols that stand for containers which are invariant, and which could not be widened themselves."""
COVARIANT = {"builtins.tuple", "typing.Sequence", "typing.Iterable", "typing.Collection"}
GRIDS = {"builtins.list", "typing.Sequence", "typing.Iterable", "typing.Collection"}
"""What a grid can stand for: it arrives as a list of cells."""


class OperatorPlugin(Plugin):
    """Checks calls of operators."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The signature of a call of an operator, with room for expressions."""
        return {f"{OPERATOR}.__call__": self._call, f"{OPERATOR}.map": self._map}.get(fullname)

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """What signatures are rewritten with has to be loaded wherever operators are."""
        return [(10, "marin_dsl.nests", -1)] if file.fullname == "marin_dsl.operator.operator" else []

    def _call(self, context: MethodSigContext) -> FunctionLike:
        found = _operator(context)
        if found is None:
            return context.default_signature
        parameters, result = found
        kinds = [self._widened(kind) for kind in parameters.arg_types]
        return _signature(context, parameters, kinds, parameters.arg_names, self._expression(_evaluated(result)))

    def _map(self, context: MethodSigContext) -> FunctionLike:
        found = _operator(context)
        if found is None or not found[0].arg_kinds or not found[0].arg_kinds[0].is_positional():
            return context.default_signature
        parameters, result = found
        first, *others = parameters.arg_types
        iterable = self._info("typing.Iterable")
        items = UnionType.make_union(
            [Instance(iterable, [self._widened(first)]), self._expression(Instance(iterable, [first]))]
        )
        kinds = [items, *map(self._widened, others)]
        many = Instance(self._info("builtins.list"), [_evaluated(result)])
        return _signature(context, parameters, kinds, [None, *parameters.arg_names[1:]], self._expression(many))

    def _widened(self, kind: Type) -> Type:
        """What stands for a parameter of a type: it, an expression of it, or a container of such members."""
        proper = get_proper_type(kind)
        if isinstance(proper, AnyType | UnpackType):
            return kind
        members = proper.items if isinstance(proper, UnionType) else [proper]
        nests = [nest for member in members for nest in self._nests(get_proper_type(member))]
        return UnionType.make_union([*nests, self._expression(kind)])

    def _nests(self, kind: ProperType) -> Sequence[Type]:
        if isinstance(kind, TupleType):
            return [kind.copy_modified(items=[self._widened(item) for item in kind.items])]
        if not isinstance(kind, Instance) or not kind.args:
            return [kind]
        name, last = kind.type.fullname, self._widened(kind.args[-1])
        grids = self._grids(get_proper_type(kind.args[-1])) if name in GRIDS else []
        if name in NESTS:
            return [Instance(self._info(NESTS[name]), [*kind.args[:-1], last]), *grids]
        if name in COVARIANT:
            return [kind.copy_modified(args=[*kind.args[:-1], last]), *grids]
        return [kind]

    def _grids(self, member: ProperType) -> Sequence[Type]:
        if isinstance(member, AnyType):
            return [Instance(self._info(GRID), [member])]
        if isinstance(member, Instance) and member.type.fullname in CELLS:
            return [Instance(self._info(GRID), [self._widened(member.args[0])])]
        return []

    def _expression(self, kind: Type) -> Instance:
        return Instance(self._info(EXPRESSION), [kind])

    def _info(self, fullname: str) -> TypeInfo:
        found = self.lookup_fully_qualified(fullname)
        assert found is not None, fullname
        assert isinstance(found.node, TypeInfo), fullname
        return found.node


def _operator(context: MethodSigContext) -> tuple[Parameters, ProperType] | None:
    """The parameters and the result of the operator that is called, where they are known."""
    operator = context.type
    if not isinstance(operator, Instance) or len(operator.args) != 2:
        return None
    # Of a generic function the variables are left open: a `T | Expression[T]` could be solved in two ways.
    parameters, result = (get_proper_type(erase_typevars(argument)) for argument in operator.args)
    if not isinstance(parameters, Parameters) or parameters.is_ellipsis_args:
        return None
    return parameters, result


def _signature(
    context: MethodSigContext, like: Parameters, kinds: list[Type], names: Sequence[str | None], result: Type
) -> FunctionLike:
    return context.default_signature.copy_modified(
        arg_types=kinds,
        arg_kinds=like.arg_kinds,
        arg_names=list(names),
        variables=(),
        ret_type=result,
        name=_called(context) or context.default_signature.name,
        definition=None,  # else each complaint is followed by a note on the method of `Operator`
    )


def _evaluated(result: ProperType) -> Type:
    """The type of an operator's value: where it returns an expression, evaluation goes on with that."""
    if isinstance(result, UnionType):
        return UnionType.make_union([_evaluated(get_proper_type(item)) for item in result.items])
    if isinstance(result, Instance) and result.type.fullname == EXPRESSION:
        return _evaluated(get_proper_type(result.args[0]))
    return result


def _called(context: MethodSigContext) -> str | None:
    """What the program calls the operator."""
    call = context.context
    return call.callee.name if isinstance(call, CallExpr) and isinstance(call.callee, NameExpr | MemberExpr) else None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks this module for."""
    return OperatorPlugin
