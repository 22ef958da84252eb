"""Two drivers work on the same data at once, and one of them is a zombie: it was taken for dead and goes on.

Elsewhere: after its lease was lost a step kept running and wrote its status all the same; two drivers worked on the
same 8,778 shards, and who wrote last decided what the result was. Here: the work is shared, a call is committed once,
and what a zombie brings late changes nothing.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marin_dsl import Store, evaluate, op
from marin_dsl.lineage.history import runs

SHARDS = 12
HERE = Path(__file__).resolve()
folder = Path(os.environ.get("STORY_FOLDER") or tempfile.mkdtemp())


@op(name="stories.tokenize", version="1")
def tokenize(shard: int) -> list[int]:
    with (folder / "executions").open("a") as log:  # to count executions; an operator of yours does no such thing
        log.write(f"{shard}\n")
    time.sleep(0.05)
    return [shard, shard * 2]


@op(name="stories.count", version="1")
def count(shards: list) -> int:
    return sum(map(len, shards))


dataset = count([tokenize(shard) for shard in range(SHARDS)]).named("stories/tokens", "1.0")

if __name__ == "__main__":
    if len(sys.argv) > 1:  # one of the two drivers
        print(evaluate(dataset, store=sys.argv[1], debug=True).value)
        sys.exit()
    url = str(folder / "store")
    environment = {**os.environ, "STORY_FOLDER": str(folder)}
    drivers = [
        subprocess.Popen([sys.executable, HERE, url], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    values = [driver.communicate(timeout=60)[0].strip() for driver in drivers]
    executions = (folder / "executions").read_text().split()
    print(f"both drivers have {values[0]} and {values[1]}; {len(executions)} executions of {SHARDS} shards")
    assert values == ["24", "24"]
    assert sorted(map(int, executions)) == list(range(SHARDS)), "a shard was worked on twice"

    # The zombie: it finishes a call late, with other bytes (it read something that had changed meanwhile).
    store, key = Store(url), tokenize(3).key
    first = store.result(key)
    late = {**first, "value": store.put([3, "written by a zombie"]).as_record()}
    visible = store.commit(key, late)
    assert visible["value"] == first["value"]
    assert evaluate(tokenize(3), store=url, debug=True).value == [3, 6]
    assert len(store.files.names(f"conflicts/{key.hex()}")) == 1
    print("what the zombie brought is recorded as a conflict, and not served")
    assert len(list(runs(store))) == 2
    print("story told")
