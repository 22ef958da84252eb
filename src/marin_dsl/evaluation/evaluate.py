"""Evaluation: what is wanted, with what settings, and what became of it."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack, overload

import attrs

from marin_dsl import labels
from marin_dsl.evaluation.evaluation import Evaluation, Interrupted
from marin_dsl.evaluation.evaluation_settings import EvaluationSettings, Policy, Watch
from marin_dsl.evaluation.executors import Cluster, Here
from marin_dsl.evaluation.garbage import fewer_collections
from marin_dsl.evaluation.worker_processes import check_workers
from marin_dsl.expression import Expression
from marin_dsl.grids import Grid, contents
from marin_dsl.operator.current import by_current_code
from marin_dsl.outcome import Failed, Ok, Outcome, Skipped
from marin_dsl.planning import Plan, plan_of
from marin_dsl.planning.code_drift import code_drift
from marin_dsl.planning.explanation import explain
from marin_dsl.planning.resolution import Resolution
from marin_dsl.settings import Settings
from marin_dsl.store import Store

T = TypeVar("T")


@overload
def evaluate(root: Expression[T], /, **settings: Unpack[EvaluationSettings]) -> Ok[T] | Failed | Skipped: ...
@overload
def evaluate(
    root: Grid[Expression[T]], /, **settings: Unpack[EvaluationSettings]
) -> tuple[Ok[T] | Failed | Skipped, ...]: ...
@overload
def evaluate(*roots: Any, **settings: Unpack[EvaluationSettings]) -> tuple[Outcome, ...]: ...
def evaluate(
    *roots: Any,
    store: Store | str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    debug: bool = False,
    keep_failures: bool = False,
    verify_sample: float = 0.0,
    drift: Policy = "advise",
    watch: Watch | None = None,
    target: str = "",
    note: str = "",
) -> Any:
    """Evaluate expressions: what the store has is served, what is missing runs, and every root gets an outcome.

    Args:
        roots: expressions, or grids of them.
        store: where results are kept; default `MARIN_STORE`, else `.marin/` beside the project's `pyproject.toml`.
        workers: run in that many processes instead of threads of this one.
        scheduler: address of a Dask scheduler to run on.
        debug: run in this thread, one call after the other, so that a debugger stops inside operators.
        keep_failures: serve the failures that are recorded instead of trying again.
        verify_sample: which part (0 to 1) of the calls that have results is run anew all the same and compared; what
            differs is recorded as a conflict and told, and the first value stays.
        drift: what to do when the label of a root stands for another recipe, or the code of a versioned operator is
            another one than that which made what is served: `advise` says so and goes on; `accept` moves the label, and
            takes the values as made by the code as it is; `use-recorded` serves what the label stands for instead of
            evaluating the root; `strict` fails before anything runs.
        watch: is told what happens.
        target: how the user named the roots, for the record.
        note: what is to be remembered of this run, for the record.

    Returns:
        `Ok`, `Failed` or `Skipped` for one expression; a tuple of them for several, or for a grid.

    Raises:
        ValueError: the part to verify or the number of workers is none.
        StoreUnavailable: the store cannot be read or written.
        LabelConflict: one label stands for two recipes among the roots.
        DriftRefused: there is drift, and the policy is `strict`.
        WorkersCannotStart: worker processes would not see the store, or would begin by running the whole script again.
        Interrupted: Ctrl-C; what was committed stays, and a second evaluation goes on from there.
    """
    if not (isinstance(verify_sample, int | float) and verify_sample is not True and 0 <= verify_sample <= 1):
        raise ValueError(f"verify_sample={verify_sample!r}: expected a part from 0 to 1, such as 0.1")
    settings = Settings.read()
    opened = store if isinstance(store, Store) else Store(store or settings.store)
    if workers is not None and not debug:
        check_workers(opened, workers)
    with fewer_collections():
        expressions = by_current_code(found for root in roots for found in contents(root))
        labels.check_unique(expressions)
        found = Evaluation(
            expressions,
            opened,
            settings,
            watch if watch is not None else lambda event: None,
            keep_failures=keep_failures,
            drift=labels.check_policy(drift),
            target=target,
            note=note,
            verify_sample=verify_sample,
        )
        found.run(lambda emit: Here(emit) if debug else Cluster(emit, found.id, workers=workers, scheduler=scheduler))
    return found.outcomes[0] if len(roots) == 1 and isinstance(roots[0], Expression) else found.outcomes


def plan(*roots: Any, store: Store | str | None = None, keep_failures: bool = False, drift: Policy = "advise") -> Plan:
    """What `evaluate` would do now, and why; nothing is run and nothing written.

    Args:
        roots: expressions, or grids of them.
        store: where results are looked up.
        keep_failures: as for `evaluate`.
        drift: as for `evaluate`; what it would find is among what the plan says.

    Raises:
        LabelConflict: one label stands for two recipes among the roots.
        DriftRefused: there is drift, and the policy is `strict`.
    """
    settings = Settings.read()
    opened = store if isinstance(store, Store) else Store(store or settings.store)
    opened.check()
    with fewer_collections():
        expressions = by_current_code(found for root in roots for found in contents(root))
        labels.check_unique(expressions)
        drifts = labels.drifts(opened, expressions)
        if labels.check_policy(drift) == "use-recorded":
            expressions = labels.recorded(expressions, drifts)
        resolution = Resolution(expressions, opened, keep_failures=keep_failures)
        code = code_drift(resolution).changed
        if drift == "strict" and (drifts or code):
            raise labels.DriftRefused(drifts, code)
        return attrs.evolve(plan_of(resolution, explain(resolution)), drifts=tuple(drifts), code=code)


__all__ = ["Interrupted", "Plan", "evaluate", "plan"]
