"""The same recipe in another region is the same experiment.

Elsewhere: the path of an output, with the region's bucket in it, was a part of the hash of whatever was made from it.
A run of weeks was forked because somebody started it elsewhere. Here: where a store lies, where a program runs and
what the environment says enters no key; results that were computed in one region are served in the other.
"""

import os
import tempfile
from pathlib import Path

from marin_dsl import File, Store, digest, evaluate, external, op
from marin_dsl.store.copy import copy

executed = []


@op(name="stories.tokenize_file", version="1")
def tokenize(corpus: File) -> list[str]:
    executed.append("tokenize")
    return corpus.read_bytes().decode().split()


@op(name="stories.train", version="1")
def train(tokens: list, rate: float) -> dict:
    executed.append("train")
    return {"loss": rate * len(tokens)}


def experiment(corpus: Path):
    known = external(str(corpus / "corpus.txt"), digest=File.of(corpus / "corpus.txt").digest)
    return train(tokenize(known), rate=0.5).named("stories/delphi", "1.0")


if __name__ == "__main__":
    regions = {}
    for name in ("us-central1", "eu-west4"):
        regions[name] = Path(tempfile.mkdtemp(prefix=name))
        (regions[name] / "corpus.txt").write_text("to be or not to be")  # a replica of the data in each region
    here, there = regions.values()

    os.environ["MARIN_PREFIX"] = f"gs://marin-{here.name}"
    one = experiment(here)
    assert evaluate(one, store=str(here / "store"), debug=True).value == {"loss": 3.0}
    assert executed == ["tokenize", "train"]

    os.environ["MARIN_PREFIX"] = f"gs://marin-{there.name}"
    os.chdir(there)
    other = experiment(there)
    assert digest(one) == digest(other), "the recipe was forked"
    print(f"one recipe in both regions: {digest(other)[:19]}…")

    copy(Store(str(here / "store")), Store(str(there / "store")), ["stories/delphi@1.0"])
    assert evaluate(other, store=str(there / "store"), debug=True).value == {"loss": 3.0}
    assert executed == ["tokenize", "train"], "something was computed again"
    print("what was computed in one region is served in the other")
    print("story told")
