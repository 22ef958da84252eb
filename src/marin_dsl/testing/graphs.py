"""A Hypothesis strategy for graphs of expressions over given operators, typed by their annotations."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

import attrs
from hypothesis import strategies as st

from marin_dsl.choices import at_least, when
from marin_dsl.expression import Expression, walk
from marin_dsl.fitting import alternatives
from marin_dsl.inline import attempt
from marin_dsl.operator import Operator
from marin_dsl.outcome import Failed, Ok, Skipped
from marin_dsl.tags import replicate, tagged
from marin_dsl.testing.typed import Strategy, nest_of, parts, stands_for, takes_anything, values_of
from marin_dsl.waits import WaitsForItself, after, check_order, merged

Strategies = Mapping[str, Strategy]
Operators = Iterable[Operator[..., Any]] | Mapping[Operator[..., Any], Strategies]


@attrs.frozen(eq=False)
class Node:
    """An expression and the type of its value; None when nothing is known of it."""

    expression: Expression[Any]
    hint: Any


def expressions(operators: Operators | None = None, *, max_nodes: int = 16) -> st.SearchStrategy[Expression[Any]]:
    """Graphs of calls of operators: shared parts, diamonds, nests, projections, arithmetic, `attempt`, tags, choices.

    An argument is a value of the parameter's annotated type (`st.from_type`), or an expression whose result has that
    type, or a list, tuple or dict of both where the type is one. Without an annotation it is any value or expression.

    Args:
        operators: the operators to call; with a mapping, each with strategies for the values of its arguments by name,
            in place of those of its annotations. Default: small operators of this package that never fail.
        max_nodes: how many nodes are drawn at most, inline ones included; the root is the one with most below it.

    Raises:
        TypeError: something among the operators is none, has no parameter of that name, or takes a type of which no
            values are known.
    """
    if operators is None:
        from marin_dsl.testing.small_operators import SMALL

        operators = SMALL
    given = operators if isinstance(operators, Mapping) else {operator: {} for operator in operators}
    if not given:
        raise TypeError("expressions(operators=...) takes one operator or more, and got none")
    return _graphs([_call(operator, strategies) for operator, strategies in given.items()], max_nodes)


@attrs.frozen(eq=False)
class _Call:
    """How an operator is called: for each parameter its type, and the values that are drawn for it."""

    operator: Operator[..., Any]
    parameters: tuple[tuple[Parameter, Any, Strategy | None], ...] = attrs.field(repr=False)


def _call(operator: Any, strategies: Strategies) -> _Call:
    if not isinstance(operator, Operator):
        raise TypeError(f"expressions(operators=...) takes operators (@op), and got {operator!r:.80}")
    known = operator.signature.parameters.parameters
    for name, strategy in strategies.items():
        if name not in known:
            raise TypeError(f"{operator.short_name} has no parameter `{name}`; it has {', '.join(known)}")
        if not isinstance(strategy, st.SearchStrategy):
            raise TypeError(
                f"the strategy for `{name}` of {operator.short_name} is {strategy!r:.80}, not a Hypothesis strategy"
            )
    typed = {name: operator.signature.hints.get(name) for name in known}
    drawn = {name: strategies[name] if name in strategies else values_of(hint) for name, hint in typed.items()}
    return _Call(operator, tuple((each, typed[name], drawn[name]) for name, each in known.items()))


@st.composite
def _graphs(draw: st.DrawFn, calls: list[_Call], max_nodes: int) -> Expression[Any]:
    nodes: list[Node] = []
    count = st.integers(1, max_nodes)
    for _ in range(max(draw(count), draw(count))):  # small graphs are not as many as Hypothesis would draw
        inline = _inline_steps(nodes, calls) if bool(nodes) and draw(st.booleans()) else []
        step = draw(st.sampled_from(inline)) if inline else _called
        nodes.append(step(draw, nodes, calls))
    return max((node.expression for node in reversed(nodes)), key=lambda made: sum(1 for _ in walk(made)))


def _called(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    call = draw(st.sampled_from(calls))
    args, kwargs = _arguments(draw, nodes, call, call.parameters)
    return Node(call.operator(*args, **kwargs), call.operator.result_hint)


def _arguments(
    draw: st.DrawFn,
    nodes: list[Node],
    call: _Call,
    parameters: Iterable[tuple[Parameter, Any, Strategy | None]],
) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for parameter, hint, own in parameters:
        argument = _argument(call, parameter, hint, own, nodes)
        if parameter.kind is parameter.VAR_KEYWORD:
            names = st.sampled_from([f"{parameter.name}_{letter}" for letter in "abc"])
            kwargs |= draw(st.dictionaries(names, argument, max_size=2))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            args += draw(st.lists(argument, max_size=3)) if by_position else []
        elif parameter.default is not parameter.empty and draw(st.booleans()):
            by_position = False
        elif parameter.kind is not parameter.KEYWORD_ONLY and by_position:
            args.append(draw(argument))
        elif parameter.kind is not parameter.POSITIONAL_ONLY:
            kwargs[parameter.name] = draw(argument)
    return args, kwargs


def _argument(call: _Call, parameter: Parameter, hint: Any, own: Strategy | None, nodes: list[Node]) -> Strategy:
    found = _argument_of(hint, own, nodes)
    if found is None:
        name = call.operator.short_name
        raise TypeError(
            f"no values are known for `{parameter.name}` of {name}, a {hint}; give a strategy: "
            f"expressions({{{name}: {{'{parameter.name}': ...}}}}), or use st.register_type_strategy"
        )
    return found


def _argument_of(hint: Any, own: Strategy | None, nodes: list[Node]) -> Strategy | None:
    """Values, expressions, and nests of both, as far as there are any."""
    found = [own] if own is not None else []
    fitting = [node.expression for node in nodes if stands_for(node.hint, hint)]
    if fitting:  # often, and late ones as likely as early ones, so that graphs are deep and shared
        found += [st.sampled_from(fitting), st.sampled_from(fitting[-2:])]
    if nodes:
        found += [nest for kind in alternatives(hint) if (nest := _nest(kind, nodes)) is not None]
    return _one_of(found) if found else None


@st.composite
def _one_of(draw: st.DrawFn, strategies: list[Strategy]) -> Any:
    """Each as likely as the others; `st.one_of` would give every part of a union a share of its own."""
    return draw(strategies[draw(st.integers(0, len(strategies) - 1))])


def _nest(hint: Any, nodes: list[Node]) -> Strategy | None:
    """Containers of a type, which hold expressions."""
    if takes_anything(hint):
        return st.lists(st.sampled_from([node.expression for node in nodes]), min_size=1, max_size=3)
    return nest_of(hint, lambda kind: _argument_of(kind, values_of(kind), nodes))


Step = Callable[[st.DrawFn, list[Node], list[_Call]], Node]


def _inline_steps(nodes: list[Node], calls: list[_Call]) -> list[Step]:
    """What can be made of the nodes that there are, besides calls."""
    found: list[Step] = [_attempted, _tagged, _chosen, _recovered, _gathered, _ordered]
    if any(node.hint in (int, float) for node in nodes):
        found += [_arithmetic, _arithmetic]
    if any(parts(node.expression, node.hint) for node in nodes):
        found += [_part, _part]
    if _mappings(nodes, calls):
        found += [_mapped]
    return found


def _picked(draw: st.DrawFn, nodes: list[Node]) -> Node:
    """One of the nodes, a late one as often as not, so that graphs are deep."""
    return draw(st.sampled_from(nodes[-2:] if draw(st.booleans()) else nodes))


def _alike(draw: st.DrawFn, nodes: list[Node], node: Node) -> Node:
    """A node of the same type, perhaps the same one."""
    return _picked(draw, [other for other in nodes if other.hint == node.hint])


def _arithmetic(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    left = _picked(draw, [node for node in nodes if node.hint in (int, float)])
    one, other = left.expression, _alike(draw, nodes, left).expression
    if draw(st.integers(0, 5)) == 5:
        return Node(draw(st.sampled_from([one < other, one.eq(other)])), bool)
    return Node(draw(st.sampled_from([one + other, one - other, one * other, -one, abs(one), 2 * one])), left.hint)


def _part(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    project, hint = draw(st.sampled_from([part for node in nodes for part in parts(node.expression, node.hint)]))
    return Node(project(), hint)


def _attempted(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    return Node(attempt(_picked(draw, nodes).expression), Ok | Failed | Skipped)


def _tagged(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    node, count = _picked(draw, nodes), draw(st.integers(0, 2))
    if isinstance(node.expression.operator, Operator) and draw(st.booleans()):
        return Node(replicate(node.expression, count + 1)[-1], node.hint)
    return Node(tagged(node.expression, again=count), node.hint)


def _chosen(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    condition = draw(st.booleans() | st.sampled_from([node.expression for node in nodes]))
    then = _picked(draw, nodes)
    return Node(when(condition, then.expression, _alike(draw, nodes, then).expression), then.hint)


def _recovered(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    node = _picked(draw, nodes)
    return Node(node.expression.recover(_alike(draw, nodes, node).expression), node.hint)


def _gathered(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    first = _picked(draw, nodes)
    others = [_alike(draw, nodes, first) for _ in range(draw(st.integers(0, 2)))]
    members = [node.expression for node in (first, *others)]
    return Node(at_least(draw(st.integers(0, len(members))), members), list[first.hint or Any])  # type: ignore[misc]


def _ordered(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    node, other = _picked(draw, nodes), _picked(draw, nodes)
    for one, another in ((node, other), (other, node)):
        made = after(one.expression, another.expression)
        everything = (*(each.expression for each in nodes), made)
        try:
            check_order(everything, merged(*everything))
        except WaitsForItself:
            continue
        # In its place, so that what is built on it is built on what waits.
        nodes[nodes.index(one)] = found = Node(made, one.hint)
        return found
    return node


def _mappings(nodes: list[Node], calls: list[_Call]) -> list[tuple[_Call, Node]]:
    """Operators together with nodes whose values are lists of what they take first."""
    return [
        (call, node)
        for call in calls
        for node in nodes
        if call.parameters
        and call.parameters[0][0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        and typing.get_origin(node.hint) is list
        and stands_for(typing.get_args(node.hint)[0], call.parameters[0][1])
    ]


def _mapped(draw: st.DrawFn, nodes: list[Node], calls: list[_Call]) -> Node:
    call, node = draw(st.sampled_from(_mappings(nodes, calls)))
    # The first parameter takes the elements, and the others can be given by name only.
    named = [
        (parameter.replace(kind=parameter.KEYWORD_ONLY), hint, own)
        for parameter, hint, own in call.parameters[1:]
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    _, others = _arguments(draw, nodes, call, named)
    return Node(call.operator.map(node.expression, **others), list[call.operator.result_hint or Any])  # type: ignore[misc]
