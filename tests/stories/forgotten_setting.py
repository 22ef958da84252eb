"""A setting deep inside a configuration was changed, and the old evaluation was not passed off for the new one.

Elsewhere: a field counted only if somebody had wrapped it in `versioned(...)`. `pack=False` was forgotten, so the
cached evaluation was served for another model, and a bug stayed hidden. Here: every argument is identity, at any
depth; what only says how a call is run never is.
"""

import tempfile
from pathlib import Path

import attrs

from marin_dsl import Store, encodable, evaluate, op, plan
from marin_dsl.lineage.comparison import compare
from marin_dsl.lineage.difference import leaves
from marin_dsl.lineage.subject import subjects

store = str(Path(tempfile.mkdtemp()) / "store")


@encodable
@attrs.frozen
class Data:
    """What a model is tuned on."""

    corpus: str
    pack: bool = True


@encodable
@attrs.frozen
class Tuning:
    """How a model is tuned."""

    data: Data
    rate: float = 1e-5


@op(name="stories.tune", version="1")
def tune(config: Tuning) -> dict:
    return {"packed": config.data.pack, "rate": config.rate}


@op(name="stories.benchmark", version="1")
def benchmark(model: dict) -> float:
    return 0.7 if model["packed"] else 0.6


if __name__ == "__main__":
    before = benchmark(tune(Tuning(Data("chat"))))
    after = benchmark(tune(Tuning(Data("chat", pack=False))))
    assert evaluate(before.named("stories/sft", "1.0"), store=store, debug=True).value == 0.7

    planned = str(plan(after, store=store))
    print(planned)
    assert planned.startswith("2 to run"), "the old evaluation would be served for another model"
    assert evaluate(after.named("stories/sft", "2.0"), store=store, debug=True).value == 0.6

    opened = Store(store)
    (old,), (new,) = (subjects(opened, f"stories/sft@{version}") for version in ("1.0", "2.0"))
    found = compare(opened, old, new)
    told = [*leaves(list(found.recipe)), *map(str, found.result)]
    print("\n".join(told))
    assert any("config.data.pack True → False" in line for line in told)

    # How it is run is no part of what it is.
    again = benchmark(tune(Tuning(Data("chat"))).with_(resources={"GPU": 8}, retries=3)).with_(timeout="2h")
    assert str(plan(again, store=store)).startswith("0 to run")
    print("other resources, retries and time limits: nothing runs anew")
    print("story told")
