"""How fast models are trained, beside their peers on the same machine in the same run.

Each row is a ratio of medians of interleaved measurements, beside its goal; exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from optax.contrib import MuonDimensionNumbers

from marin_models import (
    Checkpoints,
    OptimizerConfig,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    flops_per_token,
    parameter_groups,
)
from marin_models.feed_forward import SwiGLU
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.mixture_of_experts import MixtureOfExperts
from marin_models.newton_schulz import COEFFICIENTS
from marin_models.optimizers import Hyperparameters, optimizer
from marin_models.training import Batch, Program, Run, initial_state, train_chunk

MIXTURE = MixtureOfExpertsConfig(experts=16, top_k=2, inner=512)
SQUARE = 2048
DENSE = TransformerConfig(vocabulary=4096, width=256, layers=4, heads=4, key_value_heads=4, feed_forward=704)


class Row(NamedTuple):
    """One line of the table: a ratio, and whether it must be at most or at least its goal (None: only told)."""

    name: str
    ratio: float
    goal: float | None
    at_most: bool = True

    @property
    def kept(self) -> bool:
        """Whether the goal is reached."""
        return self.goal is None or (self.ratio <= self.goal if self.at_most else self.ratio >= self.goal)

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"{'≤' if self.at_most else '≥'} {self.goal:g}"
        return f"{self.name:<64}{self.ratio:7.2f}×   {goal:<8}{'' if self.kept else 'MISSED'}"


def medians(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each side, measured in turns after one unmeasured call."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        jax.block_until_ready(run())
    for _ in range(repeats):
        for name, run in sides.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}


def in_a_process(make: Callable[..., Callable[[], object]], *arguments: Any) -> Callable[[], object]:
    """What a function makes, in a process of its own: in one, the waiting threads of one library slow the other's."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _make, (make, arguments))
    return lambda: pool.submit(_run).result()


def _make(make: Callable[..., Callable[[], object]], arguments: tuple) -> None:
    global _run_here
    _run_here = make(*arguments)


def _run() -> object:
    return _run_here()


def muon_rows(repeats: int) -> list[Row]:
    """An optimizer step on the dense model: ours in bf16 (the default) and fp32, beside optax in fp32."""
    model = jax.jit(lambda: Transformer(DENSE, key=jax.random.key(0)))()
    gradients = jax.tree.map(lambda x: jax.random.normal(jax.random.key(x.size), x.shape), model)

    def dimensions(parameters: Transformer) -> Transformer:
        numbers = {"matrix": MuonDimensionNumbers(-2, -1)}
        return jax.tree.map(numbers.get, parameter_groups(parameters))

    peer = optax.contrib.muon(
        0.02, COEFFICIENTS["quintic"], weight_decay=0.1, muon_weight_dimension_numbers=dimensions, consistent_rms=0.2
    )

    def ours(dtype: str) -> optax.GradientTransformation:
        config = OptimizerConfig("muon", 0.02, orthogonalization=dtype)
        return optimizer(config.rule, Hyperparameters.of(config))

    def step(rule: optax.GradientTransformation) -> Callable[[], object]:
        update, state = jax.jit(rule.update), rule.init(model)
        return lambda: update(gradients, state, model)

    rules = {"optax": peer, "bfloat16": ours("bfloat16"), "float32": ours("float32")}
    found = medians({name: step(rule) for name, rule in rules.items()}, repeats)
    return [
        Row("Muon step beside optax.contrib.muon, bf16 products (default)", found["bfloat16"] / found["optax"], 0.7),
        Row("Muon step beside optax.contrib.muon, fp32, same to 1e-5", found["float32"] / found["optax"], None),
    ]


def mixture_rows(repeats: int) -> list[Row]:
    """The mixture of experts of `kernels.py` with its router and balancing, beside the dense block of equal FLOPs."""
    keys, scales = jax.random.split(jax.random.key(0), 3), {"scale": 1.0, "output_scale": 1.0}
    x = jax.random.normal(keys[0], (4096, DENSE.width))
    mixture = jax.jit(lambda key: MixtureOfExperts(MIXTURE, DENSE.width, key=key, **scales))(keys[1])
    dense = jax.jit(lambda key: SwiGLU(DENSE.width, MIXTURE.top_k * MIXTURE.inner, key=key, **scales))(keys[2])

    def forward(layer: Any, x: jax.Array) -> tuple[jax.Array, object]:
        # Statistics belong to the result: what nobody looks at, the compiler leaves out.
        found = layer(x)
        return found if isinstance(found, tuple) else (found, None)

    def objective(layer: Any, x: jax.Array) -> tuple[jax.Array, object]:
        output, statistics = forward(layer, x)
        return (output * x).sum(), statistics

    run, differentiate = jax.jit(forward), jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))
    layers = {"mixture": mixture, "dense": dense}
    once = medians({name: functools.partial(run, layer, x) for name, layer in layers.items()}, repeats)
    both = medians({name: functools.partial(differentiate, layer, x) for name, layer in layers.items()}, repeats)
    title = "FLOP rate of MoE, 16 experts, top 2, beside a dense MLP"
    return [
        Row(f"{title}, forward", once["dense"] / once["mixture"], 0.75, at_most=False),
        Row(f"{title}, with gradients", both["dense"] / both["mixture"], 0.75, at_most=False),
    ]


def dense_step(tokens: np.ndarray) -> Callable[[], object]:
    """A training step of the dense model on rows of tokens, again and again."""
    optimizer_config = OptimizerConfig("adamw", 1e-3)
    config = TrainingConfig(steps=1000, batch=tokens.shape[0], length=tokens.shape[1] - 1)
    run, program = Run.of(optimizer_config, config), Program.of(optimizer_config, config)
    state = initial_state(0, run.hyperparameters, config=DENSE, rule=optimizer_config.rule)
    batches = Batch(jax.numpy.asarray(np.stack([tokens])))

    def step() -> float:
        nonlocal state
        state, metrics = train_chunk(state, batches, 1, run, program=program)
        return float(metrics.loss[0])

    return step


def square_product() -> Callable[[], object]:
    """A product of two square matrices, the fastest that operations come on this machine."""
    product, matrix = jax.jit(jax.numpy.matmul), jax.numpy.ones((SQUARE, SQUARE))
    return lambda: float(product(matrix, matrix)[0, 0])


def dense_rows(repeats: int) -> list[Row]:
    """A training step of the dense model in fp32, beside PyTorch (extra `interop`), plain JAX and matrix products."""
    if importlib.util.find_spec("torch") is None:
        sys.exit("the rows `dense` need PyTorch: pip install marin-dsl[interop]")
    from benchmarks import dense_in_plain_jax, dense_in_torch

    length, rows = 256, 8
    tokens = np.random.default_rng(0).integers(0, DENSE.vocabulary, (rows, length + 1)).astype(np.int32)
    found = medians(
        {
            "ours": in_a_process(dense_step, tokens),
            "eager": in_a_process(dense_in_torch.train_step, DENSE, tokens),
            "compiled": in_a_process(functools.partial(dense_in_torch.train_step, compiled=True), DENSE, tokens),
            "plain": in_a_process(dense_in_plain_jax.train_step, DENSE, tokens),
            "product": in_a_process(square_product),
        },
        repeats,
    )
    floor = flops_per_token(DENSE, length) * rows * length * found["product"] / (2 * SQUARE**3)
    return [
        Row("dense training step, PyTorch eager beside ours", found["eager"] / found["ours"], 2.4, at_most=False),
        Row("dense training step, torch.compile beside ours", found["compiled"] / found["ours"], 1.3, at_most=False),
        Row("dense training step, plain JAX beside ours", found["plain"] / found["ours"], None),
        Row("dense training step beside its FLOPs at the rate of a matrix product", found["ours"] / floor, None),
    ]


def checkpoint_rows(repeats: int) -> list[Row]:
    """Checkpoints of 1 GB of state while training goes on: how long it waits, of the time until one is complete."""
    step = jax.jit(lambda state: jax.tree.map(lambda x: x * 0.999 + 0.001, state), donate_argnums=0)
    state = step([jax.numpy.full((1 << 22,), n, "float32") for n in range(60)])  # 16 MiB each
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, keep=1)
        checkpoints.reserve(state)
        for number in range(1 + min(repeats, 4)):
            checkpoints.save(number, state)
            while len(checkpoints.written) == number:
                state = jax.block_until_ready(step(state))
        checkpoints.close()
    shares = [each.blocked / each.seconds for each in checkpoints.written[1:]]  # the first one waits for its memory
    return [Row("checkpoint of 1 GB: training waits, of the time to write it", statistics.median(shares), 0.1)]


ROWS: dict[str, Callable[[int], list[Row]]] = {
    "mixture": mixture_rows,
    "muon": muon_rows,
    "dense": dense_rows,
    "checkpoint": checkpoint_rows,
}


def main() -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which rows, of {', '.join(ROWS)}; all unless given")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(ROWS))
    if unknown:
        parser.error(f"no rows named {', '.join(unknown)}; there are {', '.join(ROWS)}")
    rows = [row for name in arguments.names or ROWS for row in ROWS[name](arguments.repeats)]
    print(f"{jax.devices()[0].platform}, {jax.device_count()} device(s), jax {jax.__version__}")
    print(*rows, sep="\n")
    return int(not all(row.kept for row in rows))


if __name__ == "__main__":
    sys.exit(main())
