"""Code drift: a value is served though the code of a versioned operator that made it has changed since.

The version is the identity of such an operator, so that an edit runs nothing again. What is looked at are the operators
of the graph as it was built: all that is below what is served, through parts, arithmetic, choices and the like; and of
what operators returned, of which the graph does not know, those that their code reaches. Each recipe's pointer to its
call says by which code the value was made, in one digest for all that is below (as in a Merkle tree), so that a root
whose code is what it was costs no look-up more; where it is not, the changed operators are found by following what
differs.

Of a choice the digest holds all branches: that which was chosen by the code that made it, the others by the code that
there is, for which one was chosen is not to be looked up as long as nothing differs. An edit to another branch alone is
found to be no drift, and is recorded. Which branch was chosen is what the store has recorded of the choice last.
`op.map` over a list that is an expression makes its calls of the elements: for their code that of the template of the
calls stands, which they all have; if one was made by another code, that of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from marin_dsl.code_identity import diff
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.choices import first_of, template_of
from marin_dsl.expression.inline import INLINE, Choice, InlineOperator
from marin_dsl.expression.recipe import Reference, arguments, references
from marin_dsl.labels.drift import CodeDrift, recorded_definitions
from marin_dsl.operator import Operator

if TYPE_CHECKING:
    from marin_dsl.planning.resolution import Resolution

LOOK_UPS = 1_000
"""Expressions that are looked at, at most, to find what changed."""


def code_of(operator: Any, record: Mapping[str, Any] | None = None) -> bytes:
    """The digest of an operator's code, if it has a version; else nothing.

    Args:
        operator: of an expression.
        record: of a result, whose code is meant then instead of that which is here.
    """
    if not isinstance(operator, Operator) or operator.version is None:
        return b""
    return operator.code.digest if record is None else parse_digest(record["operator"]["code"])


def reached(operator: Any) -> dict[str, Operator[Any, Any]]:
    """The operators with a version that an operator's code reaches, by digest of identity, itself left out.

    It may return expressions of them; what they are made of is hidden from its own identity by their versions.
    """
    found: dict[str, Operator[Any, Any]] = {}
    stack = [operator] if isinstance(operator, Operator) else []
    while stack:
        for each in stack.pop().code.standing:
            if isinstance(each, Operator) and each is not operator:
                key = format_digest(each.identity)
                if key not in found:
                    found[key] = each
                    stack.append(each)
    return found


def composed(code: bytes, below: Iterable[bytes | None]) -> bytes | None:
    """What stands for the code of an expression and of all below it; None if something of it is not known.

    >>> composed(b"", [b"", b""])
    b''
    """
    parts = [code, *below]
    if None in parts:
        return None
    # All parts have one length, so that no two lists of them are one text.
    return hashlib.sha256(b"".join([part or _NOTHING for part in parts])).digest() if any(parts) else b""


_NOTHING = bytes(32)


@attrs.frozen
class Found:
    """What the search for changed code came to.

    Attributes:
        changed: the operators whose code changed though their version did not.
        served: the values that are served although, with the code that they are to be taken as made by if that is fine.
        whole: nothing was left out.
    """

    changed: tuple[CodeDrift, ...] = ()
    served: tuple[tuple[bytes, bytes, bool, bytes], ...] = ()
    whole: bool = True


def code_drift(resolution: Resolution) -> Found:
    """The operators whose code changed though their version did not, below whatever the store has.

    Args:
        resolution: what was found in the store.
    """
    served = [node for node in resolution.nodes.values() if node.how in ("hit", "cutoff") and node.made_by is not None]
    now = resolution.codes.of(*[node.expression for node in served])
    differing = [node.expression for node in served if now[node.expression.key] not in (None, node.made_by)]
    if not differing:
        return Found()
    search = _Search(resolution, now)
    search.below(differing)
    return Found(tuple(search.changed.values()), tuple(search.served), search.whole and len(search.seen) < LOOK_UPS)


@attrs.define(eq=False)
class Codes:
    """What stands for the code as it is here, of expressions with all that is below them, each gone through once."""

    _now: dict[bytes, bytes | None] = attrs.field(factory=dict)
    _known: dict[int, tuple[bytes, bytes | None, bool]] = attrs.field(factory=dict)
    """By operator, for a graph has many calls of each: its code, what stands for it alone, and if it reaches others."""
    _seen: set[bytes] = attrs.field(factory=set)

    def of(self, *roots: Expression[Any]) -> Mapping[bytes, bytes | None]:
        """By key, of the roots and of all below."""
        now, known = self._now, self._known
        for found in walk(*roots, seen=self._seen):
            own, alone, _ = known.get(id(found.operator)) or self._look(found.operator)
            if not found.references:
                now[found.key] = alone
            elif isinstance(found.operator, Choice) and found.operator.makes:
                now[found.key] = composed(b"", [now[first_of(found).key], self.of_template(found)])
            else:
                now[found.key] = composed(own, [now[each.key] for each in found.references])
        return now

    def _look(self, operator: Any) -> tuple[bytes, bytes | None, bool]:
        own, others = code_of(operator), reached(operator)
        if others:
            parts = sorted(each.identity + each.code.digest for each in others.values())
            own = hashlib.sha256(b"marin code reached 1" + b"".join([own or _NOTHING, *parts])).digest()
        self._known[id(operator)] = own, composed(own, ()), bool(others)
        return self._known[id(operator)]

    def own(self, expression: Expression[Any], record: Mapping[str, Any] | None = None) -> bytes:
        """What stands for the code of an expression's operator, with that of what it reaches.

        Args:
            expression: the expression.
            record: of a result: where it was made by another code than there is, that stands for it.
        """
        operator = expression.operator
        if record is not None and code_of(operator, record) != code_of(operator):
            return code_of(operator, record)
        return (self._known.get(id(operator)) or self._look(operator))[0]

    def reaches(self, expression: Expression[Any]) -> bool:
        """Whether the code of an expression's operator reaches operators with a version."""
        return (self._known.get(id(expression.operator)) or self._look(expression.operator))[2]

    def of_template(self, choice: Expression[Any]) -> bytes | None:
        """The same of each call that a choice makes: they have the code and the inputs of their template in common."""
        each = template_of(choice)
        return composed(self.own(each), [self._now[other.key] for other in _shared(each)])

    def of_choice(
        self, choice: Expression[Any], taken: Mapping[bytes, bytes | None], chosen: Expression[Any] | None
    ) -> bytes | None:
        """The same of a choice, given by what code the values of those branches were made that it has taken.

        Args:
            choice: the choice.
            taken: by key, of what it chose by, and of what it chose.
            chosen: what it went on with, if it did.
        """
        assert isinstance(choice.operator, Choice)
        if choice.operator.makes:
            self.of(choice)
            return self._of_made(choice, taken, chosen)
        now = self.of(*[each for each in choice.references if each.key not in taken])
        return composed(b"", [taken[each.key] if each.key in taken else now[each.key] for each in choice.references])

    def _of_made(
        self, choice: Expression[Any], taken: Mapping[bytes, bytes | None], chosen: Expression[Any] | None
    ) -> bytes | None:
        each, made = self.of_template(choice), None if chosen is None else taken[chosen.key]
        if chosen is None or made == composed(b"", [each] * len(chosen.references)):
            made = each  # all calls were made by the code that there is
        return composed(b"", [taken[first_of(choice).key], made])


def _shared(each: Expression[Any]) -> list[Expression[Any]]:
    """What the calls that are made of a template have in common: its inputs besides the element."""
    return [other for other in each.references if other.operator is not INLINE["element"]]


@attrs.define(eq=False)
class _Search:
    resolution: Resolution
    now: Mapping[bytes, bytes | None]
    changed: dict[bytes, CodeDrift] = attrs.field(factory=dict)
    served: list[tuple[bytes, bytes, bool, bytes]] = attrs.field(factory=list)
    seen: set[bytes] = attrs.field(factory=set)
    whole: bool = True

    def below(self, roots: Iterable[Expression[Any]]) -> None:
        """Follow what was made by other code than there is now, down to the operators that changed."""
        stack = list(roots)
        while stack and len(self.seen) < LOOK_UPS:
            expression = stack.pop()
            if expression.key in self.seen or not self.now[expression.key]:
                continue
            self.seen.add(expression.key)
            if isinstance(expression.operator, Choice):
                stack.extend(self._taken(expression))
                if expression.operator.makes:
                    self._made(expression)
            elif isinstance(expression.operator, InlineOperator) or self._call_differs(expression):
                stack.extend(reversed(expression.references))

    def _taken(self, choice: Expression[Any]) -> list[Expression[Any]]:
        """What a choice was made by, and what was chosen; of one that makes calls, what these have in common."""
        assert isinstance(choice.operator, Choice)
        first = first_of(choice)
        if choice.operator.makes:
            return [first, *_shared(template_of(choice))]
        chosen = self._chosen(choice)
        return [first, *(each for each in choice.references if each.key == chosen != first.key)]

    def _chosen(self, choice: Expression[Any]) -> bytes | None:
        node = self.resolution.nodes.get(choice.key)
        if node is not None and node.continuation is not None:
            return node.continuation.expression.key
        chosen = self.resolution.store.continuation(choice.key)
        self.whole = self.whole and chosen is not None
        return chosen

    def _made(self, choice: Expression[Any]) -> None:
        """Look at the calls that a choice made, which the store knows."""
        chosen, each = self._chosen(choice), template_of(choice)
        recipe = None if chosen is None else self.resolution.store.recipe(chosen)
        self.whole = self.whole and recipe is not None
        now = self.resolution.codes.of_template(choice)
        for key in () if recipe is None else references(recipe):
            if len(self.seen) >= LOOK_UPS:
                break
            if key not in self.seen:
                self.seen.add(key)
                self._differs(each, key, now, bool(_shared(each)))

    def _call_differs(self, expression: Expression[Any]) -> bool:
        return self._differs(expression, expression.key, self.now[expression.key], bool(expression.references))

    def _differs(self, expression: Expression[Any], key: bytes, now: bytes | None, inputs: bool) -> bool:
        """Whether a call was made by other code; a change of its own operator is noted.

        Args:
            expression: the call, or the template that it was made of.
            key: recipe key of the call.
            now: what stands for the code that there is.
            inputs: whether there are expressions below it.
        """
        node = self.resolution.nodes.get(key)
        store = self.resolution.store
        led = store.led_to(key)
        if node is not None and node.how == "cutoff" and node.call is not None:
            led = node.call, node.volatile, node.made_by
        record = None if led is None or led[2] == now else store.result(led[0])
        if led is None or record is None or now is None:
            return False
        call, volatile, made_by = led
        operator = expression.operator
        # Not recorded is the code of a call without inputs (its result says it), and that of earlier versions of this.
        if made_by is None and (inputs or composed(self.resolution.codes.own(expression, record), ()) == now):
            return False
        self.served.append((key, call, volatile, now))
        if code_of(operator, record) != code_of(operator):
            self._note(operator, key, record)
        if self.resolution.codes.reaches(expression):
            self._returned(key, reached(operator))
        return True

    def _returned(self, key: bytes, operators: Mapping[str, Operator[Any, Any]]) -> None:
        """Look at what a call returned, and at all that came of that, as the store has recorded it."""
        store, inner = self.resolution.store, self.resolution.store.continuation(key)
        waiting = [] if inner is None else [inner]
        while waiting and len(self.seen) < LOOK_UPS:
            current = waiting.pop()
            recipe = None if current in self.seen else store.recipe(current)
            if recipe is None:
                continue
            self.seen.add(current)
            waiting += [*needed(recipe), *filter(None, [store.continuation(current)])]
            operator = operators.get(recipe["operator"]["identity"])
            call = None if operator is None else store.call_of(current)
            record = None if call is None else store.result(call)
            if record is not None and code_of(operator, record) != code_of(operator):
                self._note(operator, current, record)
        self.whole = self.whole and not waiting

    def _note(self, operator: Any, key: bytes, record: Mapping[str, Any]) -> None:
        store = self.resolution.store
        if operator.identity in self.changed and self.changed[operator.identity].diff:
            return
        recipe = store.recipe(key)
        known = recipe is not None and recipe["operator"].get("code") == record["operator"]["code"]
        before = recorded_definitions(store, recipe) if recipe is not None and known else {}
        text = diff(before, operator.code.listing) if before else ""
        drift = CodeDrift(operator.name, str(operator.version), record["title"], text)
        self.changed[operator.identity] = drift


def needed(recipe: Mapping[str, Any]) -> list[bytes]:
    """What a recorded expression needed: all that it refers to, or of a choice only what it decided by."""
    operator = INLINE.get(recipe["operator"]["name"]) if recipe["operator"]["inline"] else None
    if not isinstance(operator, Choice):
        return references(recipe)
    first = arguments(recipe).get(operator.first)
    return [first.key] if isinstance(first, Reference) else []


def accept(resolution: Resolution, found: Found) -> None:
    """Take it that the code as it is now would make the same values, so that nothing is said of it again."""
    for key, call, volatile, made_by in found.served:
        resolution.store.put_call(key, call, volatile=volatile, made_by=made_by)
        if key in resolution.nodes:
            resolution.nodes[key].made_by = made_by
