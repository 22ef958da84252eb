"""What expert-parallel layers cost on devices that are not here: one line for each transport, dtype and topology.

    python benchmarks/compiled.py [--topologies v5p:2x2x1,h200:4] [--transports ring,ragged] [--json FILE]

Each line is one compiled program, forward and reverse pass: memory beside arguments and results, the collectives with
the bytes of their results on one device, and the planner's own count, the bytes of rows that one shard must send on
the four legs (dispatch and combination, forward and back) when its experts are used evenly. `fused_tpu` sends by remote
copies, which are no collectives. Needs the extra `compilers`; compiling takes half a minute a line and more.
"""

import argparse
import json
import os
import time
from pathlib import Path

from marin_kernels.topologies import ENVIRONMENT

os.environ |= ENVIRONMENT  # before jax asks for TPUs

from marin_kernels.costs import Costs, costs_of
from marin_kernels.expert_parallel.compiled import Layer, compile_layer
from marin_kernels.expert_parallel.dispatch import TRANSPORTS

TOPOLOGIES = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1", "h200:4")
LEGS = 4
MIB = 2**20


def measure(topology: str, transport: str, layer: Layer) -> dict:
    line = {"topology": topology, "transport": transport, "dtype": layer.dtype, "payload": LEGS * layer.payload}
    begun = time.perf_counter()
    try:
        costs = costs_of(compile_layer(topology, transport, layer))
    except Exception as error:  # a refusal is a result: the compiler's reason stands in the table
        return line | {"refused": str(error).strip().splitlines()[0][:100]}
    return line | {"seconds": time.perf_counter() - begun} | facts(costs)


def facts(costs: Costs) -> dict:
    kinds = {kind: {"count": found.count, "bytes": found.size} for kind, found in costs.collectives.items()}
    return {"temporary": costs.temporary, "received": costs.received, "collectives": kinds}


def spelled(line: dict) -> str:
    start = f"{line['topology']:<12} {line['dtype']:<9} {line['transport']:<13}"
    if "refused" in line:
        return f"{start} refused: {line['refused']}"
    kinds = [f"{found['count']} {kind}" for kind, found in sorted(line["collectives"].items())]
    figures = (line["seconds"], line["temporary"] / MIB, line["received"] / MIB, line["payload"] / MIB)
    return start + "{:7.1f} {:9.0f} {:9.0f} {:9.0f}  ".format(*figures) + ", ".join(kinds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topologies", default=",".join(TOPOLOGIES))
    parser.add_argument("--transports", default=",".join(sorted(set(TRANSPORTS) - {"local", "reference"})))
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    print(f"{'topology':<12} {'dtype':<9} {'transport':<13}{'s':>7} {'temp MiB':>9} {'recv MiB':>9} {'plan MiB':>9}")
    lines = []
    for topology in options.topologies.split(","):
        for dtype in options.dtypes.split(","):
            for transport in options.transports.split(","):
                lines.append(measure(topology, transport, Layer(dtype=dtype)))
                print(spelled(lines[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
