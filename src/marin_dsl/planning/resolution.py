"""What is there, what will run, and why: the descent from what is wanted through what a store already has.

`Resolution` holds what is known of each expression and is moved on by outcomes; it reads a store and never writes one.
Everything is iterative: what a node goes on with, and what that goes on with, may be of any depth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from marin_dsl import labels
from marin_dsl.encoding import LeafMissing
from marin_dsl.expression import Expression, arguments_of
from marin_dsl.expression.choices import first_of
from marin_dsl.expression.inline import Choice, InlineFunction, Recall
from marin_dsl.expression.keys import drawn, recipe_key, volatile_key
from marin_dsl.expression.waits import Waits, check_order, merged
from marin_dsl.outcome import Blame, Failed
from marin_dsl.planning.code_drift import Codes, composed
from marin_dsl.planning.inline_values import InlineValues
from marin_dsl.planning.node import Node
from marin_dsl.store import Store, StoredValue, StoreUnavailable
from marin_dsl.store.absences import Absences
from marin_dsl.worker import failure_of
from marin_dsl.worker.bounds import MESSAGE, bounded_lines, cut
from marin_dsl.worker.performance import exception_name, exception_text


class Resolution:
    """The state of an evaluation: nodes by recipe key, and the queue of those that must run.

    Whoever drives it takes nodes from `ready`, and may take from `found` what was demanded, and from `decided` what got
    its outcome without an answer of its own.

    Args:
        roots: the expressions that are wanted.
        store: where results are looked up.
        keep_failures: serve recorded failures instead of trying again.
        run: the id of the run, which calls that are made anew in each run are known by.
        sample: which part of the calls that have results (0 to 1) is run anew all the same, to compare; above 0, all
            that is under a result is looked at too.

    Raises:
        WaitsForItself: an expression waits for something that needs it.
    """

    def __init__(
        self,
        roots: tuple[Expression[Any], ...],
        store: Store,
        *,
        keep_failures: bool = False,
        run: str = "",
        sample: float = 0.0,
    ) -> None:
        self.roots = roots
        self.run = run.encode()
        self.sample = sample
        self.store = store
        self.keep_failures = keep_failures
        self.values = InlineValues(store)
        self.codes = Codes()
        self.nodes: dict[bytes, Node] = {}
        self.found: deque[Node] = deque()
        self.ready: deque[Node] = deque()
        self.decided: deque[Node] = deque()
        self._waits: Waits = {}
        self._outcomes: dict[bytes, Failed | Expression[Any]] = {}
        self._undecided: deque[Node] = deque()
        self._demand(*roots)
        check_order(roots, self._waits)
        self._settle()

    def _demand(self, *roots: Expression[Any]) -> None:
        """Look up what is wanted, and go on to the inputs of what is not there."""
        for key, others in merged(*roots).items():
            self._waits.setdefault(key, {}).update(others)
        stack, absences = list(reversed(roots)), Absences(self.store)
        fresh: list[tuple[Node, list[Expression[Any]]]] = []
        while stack:
            expression = stack.pop()
            if expression.key in self.nodes:
                continue
            node = self.nodes[expression.key] = Node(expression)
            self.found.append(node)
            if not self._look_up(node, absences):
                needed = self._needed(expression)
                stack.extend(reversed(needed))
                fresh.append((node, needed))
        for node, needed in fresh:
            for found in {each.key: self.nodes[each.key] for each in needed}.values():
                if not found.done:
                    node.waiting += 1
                    found.dependents.append(node)
            if node.waiting == 0:
                self._undecided.append(node)
            else:
                node.missed = False  # until it is decided on, somebody else may come first

    def _needed(self, expression: Expression[Any]) -> list[Expression[Any]]:
        """What has to have an outcome before an expression can be decided on."""
        waits = self._waits.get(expression.key, {}).values()
        if isinstance(expression.operator, Choice):
            return [first_of(expression), *waits]
        return [*expression.references, *waits]

    def _look_up(self, node: Node, absences: Absences) -> bool:
        """Whether the store has the recipe's value: then nothing under it is looked at."""
        if node.inline or self.sample > 0.0:
            return False
        if not node.expression.references and not node.impure:
            return self._look_up_leaf(node, absences)
        node.led = absences.look("recipes", node.expression.key, self.store.led_to)
        call = None if node.led is None or node.led[1] else node.led[0]
        found = None if call is None else self.store.valued(call)
        if found is None or (found[0]["over_failure"] and not self.keep_failures):
            return False  # what failed under it is tried again; if it fails alike, its dependents are cut off
        record, value = found
        node.how, node.call, node.over_failure = "hit", call, record["over_failure"]
        node.made_by, node.stands_for = None if node.led is None else node.led[2], record.get("stands_for")
        node.stored(value)
        return True

    def _look_up_leaf(self, node: Node, absences: Absences) -> bool:
        """The same for a call without inputs, which is known by its recipe key."""
        call = node.expression.key
        found = absences.look("results", call, self.store.valued)
        if found is None:
            node.missed = True
            known = absences.look("recipes", call, self.store.recipe) is not None
            node.led = self.store.led_to(call) if known else None
            return False
        record, value = found
        node.how, node.call, node.led = "hit", call, (call, False, None)
        node.made_by, node.stands_for = composed(self.codes.own(node.expression, record), ()), record.get("stands_for")
        if self.codes.reaches(node.expression):  # its result says only by what code of its own it was made
            node.led = self.store.led_to(call) or node.led
            node.made_by = node.led[2] or node.made_by
        node.stored(value)
        return True

    def _settle(self) -> None:
        """Decide on nodes whose inputs all have outcomes, and on whatever that decides in turn."""
        while self._undecided:
            node = self._undecided.popleft()
            if node.done:
                continue  # it was failed meanwhile, for it waited for itself
            self._decide(node)
            if node.done:
                self.decided.append(node)
                self._release(node)

    def _release(self, node: Node) -> None:
        for dependent in node.dependents:
            dependent.waiting -= 1
            if dependent.waiting == 0:
                self._undecided.append(dependent)
        node.dependents.clear()

    def _decide(self, node: Node) -> None:
        if node.continuation is not None:
            self._adopt(node, node.continuation)
            return
        operator = node.expression.operator
        inputs = [self.nodes[each.key] for each in self._needed(node.expression)]
        waits = [self.nodes[key] for key in self._waits.get(node.expression.key, {})]
        if not isinstance(operator, Choice):
            data = [self.nodes[reference.key] for reference in node.expression.references]
            node.over_failure = any(found.over_failure or found.outcome() is not None for found in data)
            node.volatile = any(found.volatile for found in data)
            node.made_by = composed(self.codes.own(node.expression), [found.made_by for found in data])
            node.reaches = self.codes.reaches(node.expression)
        of_outcome = isinstance(operator, InlineFunction | Choice) and operator.of_outcome
        without = [found for found in (waits if of_outcome else inputs) if found.outcome() is not None]
        if without:
            node.skipped(without)
            if isinstance(operator, Choice):
                self._made_by_choosing(node)
        elif isinstance(operator, Choice):
            self._choose(node, operator, inputs[0])
        elif isinstance(operator, InlineFunction):
            self._compute(node, operator, inputs)
        elif isinstance(operator, Recall):
            self._recall(node)
        else:
            self._decide_call(node)

    def _decide_call(self, node: Node) -> None:
        digests = [self.nodes[reference.key].digest or b"" for reference in node.expression.references]
        node.call = recipe_key(node.expression.identity, node.expression.payload, digests)
        if node.impure:
            node.call, node.volatile = volatile_key(node.call, self.run), True
        found = None if node.missed else self.store.valued(node.call)
        node.verifies = found is not None and drawn(node.call, self.run, self.sample)
        if found is not None and not node.verifies:
            record, value = found
            node.how = "cutoff"
            below = [self.nodes[reference.key].made_by for reference in node.expression.references]
            node.made_by = composed(self.codes.own(node.expression, record), below)
            node.stored(value)
            return
        if self.keep_failures and not node.verifies and self._kept(node, node.call):
            node.how = "kept"
            return
        node.how = "run"
        earlier = self._outcomes.get(node.call)  # another recipe has come to the same call in this run
        if earlier is None:
            self.ready.append(node)
        elif isinstance(earlier, Failed):
            node.failed = earlier
        else:
            self._go_on(node, earlier)

    def _kept(self, node: Node, call: bytes) -> bool:
        """Whether it is recorded that the call has no value."""
        failure, because = self.store.last_failure(call), self.store.skipped(call)
        if failure is not None:
            node.failed = failure_of(failure)
        elif because is not None:
            node.because = tuple(Blame(**found) for found in because)
        return node.done

    def _compute(self, node: Node, operator: InlineFunction, inputs: list[Node]) -> None:
        node.how = "inline"
        try:
            of = self.values.of_outcomes if operator.of_outcome else self.values.of_values
            node.computed(of(node, inputs))
        except Exception as error:
            self._raise_trouble(error)
            node.failed = _failure(node, error)

    def _raise_trouble(self, error: Exception) -> None:
        """Trouble with the store ends the evaluation, and is no failure of what needed a value from it."""
        if isinstance(error, StoreUnavailable) and error.url == self.store.url:
            raise error

    def _recall(self, node: Node) -> None:
        node.how, node.volatile = "inline", True
        try:
            node.stored(labels.recalled(self.store, arguments_of(node.expression)["label"]))
        except LookupError as error:
            node.failed = _failure(node, error)

    def _choose(self, node: Node, operator: Choice, first: Node) -> None:
        node.how = "inline"
        node.over_failure = first.over_failure or first.outcome() is not None
        node.volatile = first.volatile
        try:
            if operator.of_outcome:
                value = first.outcome() is None
            else:
                value = self.values.peek(first) if operator.unread else self.values.load(first)
            chosen = operator.choose(value, arguments_of(node.expression))
        except Exception as error:
            self._raise_trouble(error)
            node.failed = _failure(node, error)
            self._made_by_choosing(node)
        else:
            self._go_on(node, chosen)

    def _go_on(self, node: Node, expression: Expression[Any]) -> None:
        """Let the outcome of a node be that of an expression, which is demanded by that."""
        self._demand(expression)
        node.continuation = self.nodes[expression.key]
        if node.continuation.done:
            self._adopt(node, node.continuation)
        else:
            node.waiting = 1
            node.continuation.dependents.append(node)

    def _adopt(self, node: Node, other: Node) -> None:
        """Give a node the outcome of the one that it goes on with."""
        if isinstance(node.expression.operator, Choice):
            self._made_by_choosing(node, other)
        elif other.made_by != self.codes.of(other.expression)[other.expression.key]:
            node.made_by = composed(b"", [node.made_by, other.made_by])  # what it returned was made by other code
        node.over_failure = node.over_failure or other.over_failure or other.outcome() is not None
        node.volatile = node.volatile or other.volatile
        node.value, node.encoded, node.digest = other.value, other.encoded, other.digest
        if other.outcome() is not None:
            node.skipped((other,))

    def _made_by_choosing(self, node: Node, *chosen: Node) -> None:
        taken = (self.nodes[first_of(node.expression).key], *chosen)
        made_by = {each.expression.key: each.made_by for each in taken}
        node.made_by = self.codes.of_choice(node.expression, made_by, chosen[0].expression if chosen else None)

    def load(self, node: Node) -> Any:
        """The value of a node that has one."""
        return self.values.load(node)

    def finish(self, node: Node, outcome: StoredValue | Failed | Expression[Any]) -> None:
        """Tell what became of a node that ran; others become ready or get their outcomes by that.

        Given an expression, the node goes on with it, and is among `decided` when that has its outcome.
        """
        if not isinstance(outcome, StoredValue) and node.call is not None:
            self._outcomes[node.call] = outcome
        if isinstance(outcome, Expression):
            self._go_on(node, outcome)
            if node.done:
                self.decided.append(node)
        elif isinstance(outcome, Failed):
            node.failed = outcome
        else:
            node.stored(outcome)
        if node.done:
            self._release(node)
        self._settle()

    def fail_circle(self) -> bool:
        """Fail a node that waits for its own outcome, for when nothing is left to run; whether there was one.

        Operators that return expressions can refer to what they are evaluated for.
        """
        circle = self._circle()
        if not circle:
            return False
        start = next(place for place, found in enumerate(circle) if found.continuation is not None)
        circle = circle[start:] + circle[:start]
        node = circle[0]
        path = " needs ".join(found.title for found in [*circle, node])
        node.failed = _failure(node, RecursionError(f"its value depends on itself: {path}"))
        node.continuation = None
        self.decided.append(node)
        self._release(node)
        self._settle()
        return True

    def _circle(self) -> list[Node]:
        node = next((found for found in self.nodes.values() if not found.done), None)
        path: dict[bytes, Node] = {}
        while node is not None and node.expression.key not in path:
            path[node.expression.key] = node
            node = next((found for found in self._awaited(node) if not found.done), None)
        if node is None:
            return []
        keys = list(path)
        return [path[key] for key in keys[keys.index(node.expression.key) :]]

    def _awaited(self, node: Node) -> list[Node]:
        if node.continuation is not None:
            return [node.continuation]
        return [self.nodes[each.key] for each in self._needed(node.expression)]

    def in_order(self) -> Iterator[Node]:
        """All nodes, each after those whose outcomes it needs."""
        seen: set[bytes] = set()
        stack = [(self.nodes[root.key], False) for root in reversed(self.roots)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                yield node
            elif node.expression.key not in seen:
                seen.add(node.expression.key)
                stack.append((node, True))
                stack.extend((found, False) for found in reversed(self._under(node)))

    def _under(self, node: Node) -> list[Node]:
        if node.how == "hit":
            return []
        needed = [self.nodes[each.key] for each in self._needed(node.expression)]
        return needed if node.continuation is None else [*needed, node.continuation]

    def counts(self) -> dict[str, int]:
        """How many nodes (inline ones aside) are where: served, to run or run, kept failures, skipped, open."""
        found = {"served": 0, "run": 0, "kept": 0, "skipped": 0, "open": 0}
        names = {"hit": "served", "cutoff": "served", "run": "run", "kept": "kept", "skipped": "skipped", None: "open"}
        for node in self.nodes.values():
            if not node.inline:
                found[names[node.how]] += 1
        return found


def _failure(node: Node, error: Exception) -> Failed:
    kind: Any = "lost" if isinstance(error, LeafMissing) else "raised"
    notes = tuple(bounded_lines(map(str, getattr(error, "__notes__", ()))))
    message = cut(exception_text(error), MESSAGE)
    return Failed(kind, exception_name(error), message, operator=node.title, notes=notes)
