"""What is there is served, though what it was made from is gone.

Elsewhere: a cached final step rebuilt its ancestors, since the graph was expanded before the cache was asked; the raw
data of months ago had been deleted to save money. Here: evaluation is driven by demand and stops at what is there;
nothing below it is run or even looked at.
"""

import tempfile
from pathlib import Path

from marin_dsl import File, Store, evaluate, external, op, plan

folder = Path(tempfile.mkdtemp())
executed = []


@op(name="stories.download", version="1")
def download(raw: File) -> str:
    executed.append("download")
    return raw.read_bytes().decode()


@op(name="stories.normalize", version="1")
def normalize(text: str) -> str:
    executed.append("normalize")
    return text.lower()


@op(name="stories.train_on", version="1")
def train(text: str, seed: int) -> dict:
    executed.append(f"train {seed}")
    return {"letters": len(set(text)), "seed": seed}


if __name__ == "__main__":
    raw = folder / "raw.txt"
    raw.write_text("A Raw Text")
    pinned = external(str(raw), digest=File.of(raw).digest)
    clean = normalize(download(pinned))
    model = train(clean, seed=0)
    store = str(folder / "store")
    assert evaluate(model, store=store, debug=True).ok
    assert executed == ["download", "normalize", "train 0"]

    # The raw data is deleted, and so are the results of both ancestors.
    raw.unlink()
    opened = Store(store)
    for ancestor in (download(pinned), clean):
        call = opened.call_of(ancestor.key)
        opened.files.remove(f"results/{call.hex()[:2]}/{call.hex()[2:]}.json")
    executed.clear()

    print(plan(model, store=store))
    assert evaluate(model, store=store, debug=True).value["letters"] == 7
    assert executed == [], "an ancestor was built again"
    print("the model is served; no ancestor was built again")

    assert evaluate(train(clean, seed=1), store=store, debug=True).ok
    assert executed == ["download", "normalize", "train 1"]
    print("another model needs its ancestors, and only now they run: from the copy of the raw data in the store")
    print("story told")
