"""The kernels beside what they replace, both sides in one run: times, arithmetic rates and memory on this CPU.

Prints a table; exits with 1 when a figure misses its goal. Sides take turns, and figures are ratios of their medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marin_kernels import linear_cross_entropy
from marin_kernels.expert_parallel import Experts, Routing, moe
from marin_kernels.grouped_matmul import grouped_matmul

Row = tuple[str, float, str, bool]
MIB = 2**20


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape) / np.sqrt(shape[-2] if len(shape) > 1 else 1)


def compiled(function: Callable, *arguments: Any) -> jax.stages.Compiled:
    return jax.jit(function).lower(*arguments).compile()


def seconds(sides: dict[str, Callable], *arguments: Any, rounds: int) -> dict[str, float]:
    """The median time of each side; one round goes first and does not count."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            jax.block_until_ready(side(*arguments))
            taken[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times[1:]) for name, times in taken.items()}
    print("  ".join(f"{name} {median * 1e3:.1f} ms" for name, median in medians.items()), flush=True)
    return medians


def results(function: Callable) -> Callable:
    """A product of rows and matrices, that takes a cotangent too."""
    return lambda rows, matrices, _: function(rows, matrices)


def gradients(function: Callable) -> Callable:
    """Both reverse products of a product of rows and matrices."""
    return lambda rows, matrices, cotangent: jax.vjp(function, rows, matrices)[1](cotangent)


def grouped_matmul_rows(rounds: int) -> list[Row]:
    """4,096 rows of 256 by 16 matrices of 256×512: groups of random sizes."""
    generator = np.random.default_rng(0)
    sizes = jnp.array(generator.multinomial(4096, generator.dirichlet(np.full(16, 4.0))), jnp.int32)
    arguments = normal(0, 4096, 256), normal(1, 16, 256, 512), normal(2, 4096, 512)
    products = {
        "dense": lambda rows, matrices: rows @ matrices[0],
        "blocked": lambda rows, matrices: grouped_matmul(rows, matrices, sizes, implementation="blocked"),
        "ragged_dot": lambda rows, matrices: jax.lax.ragged_dot(rows, matrices, sizes),
    }
    found: list[Row] = []
    for direction, over in (
        ("forward", lambda f: lambda rows, matrices, _: f(rows, matrices)),
        ("backward", gradients),
    ):
        sides = {name: compiled(over(function), *arguments) for name, function in products.items()}
        times = seconds(sides, *arguments, rounds=rounds)
        slower, faster = times["blocked"] / times["dense"], times["ragged_dot"] / times["blocked"]
        found.append((f"grouped matmul {direction}: time beside dense", slower, "≤ 1.5", slower <= 1.5))
        found.append((f"grouped matmul {direction}: ragged_dot's time beside it", faster, "≥ 15", faster >= 15))
    return found


def mixture_rows(rounds: int) -> list[Row]:
    """4,096 tokens of 256, two of 16 experts of inner width 512, beside a dense SwiGLU of inner width 1,024."""
    tokens, width, inner, count, chosen = 4096, 256, 512, 16, 2
    experts = Experts(normal(3, count, width, inner), normal(4, count, width, inner), normal(5, count, inner, width))
    dense = Experts(*(normal(6 + i, *shape) for i, shape in enumerate([(width, 2 * inner)] * 2 + [(2 * inner, width)])))
    scores = jax.random.normal(jax.random.key(9), (tokens, count))
    weights, chosen_experts = jax.lax.top_k(jax.nn.softmax(scores), chosen)
    x = normal(10, tokens, width)

    routing = Routing(chosen_experts, weights, None)

    def swiglu(x, matrices, _):
        return (jax.nn.silu(x @ matrices.gate) * (x @ matrices.up)) @ matrices.down

    def mixture(x, matrices, routing):
        return moe(x, routing, matrices, implementation="local")[0]

    def both(layer):
        return lambda x, matrices, routing: jax.vjp(lambda *y: layer(*y, routing), x, matrices)[1](x)

    found: list[Row] = []
    for direction, over in (("forward", lambda layer: layer), ("forward and backward", both)):
        sides = {
            "mixture": partial(compiled(over(mixture), x, experts, routing), x, experts),
            "dense": partial(compiled(over(swiglu), x, dense, routing), x, dense),
        }
        times = seconds(sides, routing, rounds=rounds)
        rate = times["dense"] / times["mixture"]  # the arithmetic is the same: rates are as times, inverted
        found.append((f"mixture of experts {direction}: rate beside dense", rate, "≥ 0.75", rate >= 0.75))
    return found


HEAD = 8192, 512, 32_000
"""Tokens, width and vocabulary of the cross-entropy."""


def cross_entropy_sides() -> tuple[dict[str, Callable], tuple[jax.Array, ...]]:
    tokens, width, vocabulary = HEAD
    arguments = (
        jax.random.normal(jax.random.key(11), (tokens, width)),
        normal(12, width, vocabulary),
        jax.random.randint(jax.random.key(13), (tokens,), 0, vocabulary),
    )

    def side(implementation):
        return jax.value_and_grad(
            lambda h, w, t: linear_cross_entropy(h, w, t, implementation=implementation)[0], (0, 1)
        )

    return {"reference": side("reference"), "blocked": side("blocked")}, arguments


def memory(name: str) -> float:
    """A figure of this process's memory that Linux keeps, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def measured_peak(name: str) -> float:
    """MiB that a process of its own takes at its peak, above what it had before the call."""
    functions, arguments = cross_entropy_sides()
    side = compiled(functions[name], *arguments)
    jax.block_until_ready(arguments)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = memory("VmRSS")
    jax.block_until_ready(side(*arguments))
    return memory("VmHWM") - before


def cross_entropy_rows(rounds: int) -> list[Row]:
    """Value and gradients."""
    functions, arguments = cross_entropy_sides()
    sides = {name: compiled(function, *arguments) for name, function in functions.items()}
    temporary = {name: side.memory_analysis().temp_size_in_bytes / MIB for name, side in sides.items()}
    measured = {}
    for name in functions if Path("/proc/self/clear_refs").exists() else ():
        command = [sys.executable, __file__, "--peak", name]
        measured[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"temporary MiB, compiled: {temporary}; measured with the results: {measured}", flush=True)
    times = seconds(sides, *arguments, rounds=rounds)
    rows: list[Row] = []
    for how, taken in (("compiled", temporary), *((("measured", measured),) if measured else ())):
        share = taken["blocked"] / taken["reference"]
        rows.append((f"cross-entropy: memory beside plain, {how}", share, "≤ 0.125", share <= 0.125))
    slower = times["blocked"] / times["reference"]
    return [*rows, ("cross-entropy: time beside plain", slower, "≤ 1.1", slower <= 1.1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, two for the slowest figure")
    parser.add_argument("--peak", choices=["reference", "blocked"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(measured_peak(options.peak))
        return 0
    rows = [
        *grouped_matmul_rows(options.rounds),
        *mixture_rows(options.rounds),
        *cross_entropy_rows(min(2, options.rounds)),
    ]
    for name, value, goal, kept in rows:
        print(f"{name:<62}{value:>8.3f}   {goal:<8}{'' if kept else 'MISSED'}")
    return 0 if all(kept for *_, kept in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
