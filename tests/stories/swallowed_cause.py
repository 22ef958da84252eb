"""A step failed: which, why, where, and what else is there.

Elsewhere: "1 step(s) failed", and the cause was in a log of a machine that was gone; one failure lost the results of
all others. Here: a failure is data. Each root has an outcome, the cause is told with its place in the code, it is
still there later, and nothing has to be deleted before it is tried again.
"""

import tempfile
from pathlib import Path

from marin_dsl import Store, evaluate, grid, op
from marin_dsl.lineage.failures import failures

store = str(Path(tempfile.mkdtemp()) / "store")
mended = []


class TokenizerMissing(RuntimeError):
    """The tokenizer cannot be found."""


@op(name="stories.load", version="1")
def load(name: str) -> str:
    try:
        return {"a": "text of a", "b": "text of b", **({"c": "text of c"} if mended else {})}[name]
    except KeyError as error:
        raise TokenizerMissing(f"no tokenizer for corpus {name!r}") from error


@op(name="stories.evaluate_on", version="1")
def score(text: str) -> float:
    return len(text) / 10


if __name__ == "__main__":
    scores = grid(name=["a", "b", "c"])(lambda name: score(load(name)))
    one, two, three = evaluate(scores, store=store, debug=True)
    assert (one.value, two.value) == (0.9, 0.9), "the others were lost"
    print(f"two values, and one that says: {three.summary}")
    assert "no tokenizer for corpus 'c'" in three.summary

    # Later, by somebody else, from the records alone: what failed, why, and where in the code.
    (failed,) = failures(Store(store))
    print(f"{failed.title}: {failed.last.summary} ({failed.last.place})")
    assert "TokenizerMissing" in failed.last.traceback
    assert "KeyError: 'c'" in failed.last.traceback, "the first cause was swallowed"
    assert "swallowed_cause.py" in failed.last.place

    mended.append(True)
    assert [outcome.ok for outcome in evaluate(scores, store=store, debug=True)] == [True] * 3
    print("mended and run again: nothing had to be deleted by hand")
    print("story told")
