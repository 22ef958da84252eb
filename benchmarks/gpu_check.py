"""Every path that GPUs run, on the GPU of this machine: numbers against references, and times; under eight minutes.

Writes a JSON report and exits with 0 when every check passed, 1 when one failed or found no time, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from marin_kernels import causal_attention, linear_cross_entropy
from marin_kernels.expert_parallel import ExpertParallelImplementation, Experts, Routing, moe
from marin_kernels.grouped_matmul import grouped_matmul
from marin_models import OptimizerConfig, TrainingConfig, TransformerConfig
from marin_models.training import Batch, Program, Run, initial_state, train_step

BUDGET = 420.0
"""Seconds after which no further check begins."""

Check = tuple[str, Callable[[], dict[str, Any]]]


def normal(seed: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return (jax.random.normal(jax.random.key(seed), shape) / np.sqrt(shape[-2])).astype(dtype)


def milliseconds(function: Callable, *arguments: Any, rounds: int = 5) -> float:
    """The median of some calls of a compiled function, after two that do not count."""
    taken = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        taken.append(1e3 * (time.perf_counter() - began))
    return round(statistics.median(taken[2:]), 3)


def with_gradients(function: Callable) -> Callable:
    """The result and the gradients of its sum of squares."""

    def run(*arguments):
        result, pull = jax.vjp(function, *arguments)
        return result, *pull(result)

    return jax.jit(run)


def worst_error(found: Any, wanted: Any) -> float:
    """The largest error of any array over that array's peak; NaN counts as infinite."""
    errors = []
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        error = np.abs(x - y).max(initial=0) / max(np.abs(y).max(initial=0), 1e-30)
        errors.append(error if np.isfinite(error) else np.inf)
    return float(max(errors))


def outcome(error: float, tolerance: float, **figures: Any) -> dict[str, Any]:
    return {"passed": bool(error <= tolerance), "error": error, "tolerance": tolerance, **figures}


def check_grouped_matmul(implementation: str, dtype: str) -> dict[str, Any]:
    """Uneven groups, an empty one, and a tail of NaN; then the time at 32,768 rows of 64 groups beside one product."""
    sizes, used = jnp.array([0, 1, 63, 65, 300, 0, 511, 60]), 1000
    rows, matrices = normal(0, 1024, 256, dtype=dtype), normal(1, 8, 256, 384, dtype=dtype)

    def run(name, rows, matrices):
        call = partial(grouped_matmul, sizes=sizes, implementation=name)
        result, pull = jax.vjp(call, rows, matrices)
        return result, *pull(result.at[used:].set(jnp.nan))

    jitted = jax.jit(run, static_argnums=0)
    found = jitted(implementation, rows.at[used:].set(jnp.nan), matrices)
    wide = (rows.astype(jnp.float32), matrices.astype(jnp.float32))
    with jax.default_matmul_precision("highest"):
        wanted = jitted("reference", *wide)
    big_rows, big_matrices = normal(2, 32_768, 2048, dtype=dtype), normal(3, 64, 2048, 1024, dtype=dtype)
    even = jnp.full(64, 512, jnp.int32)
    grouped = with_gradients(lambda r, m: grouped_matmul(r, m, even, implementation=implementation))
    dense = with_gradients(lambda r, m: r @ m[0])
    arguments = big_rows, big_matrices
    times = {"ms": milliseconds(grouped, *arguments), "dense_ms": milliseconds(dense, *arguments)}
    return outcome(worst_error(found, wanted), 1e-5 if dtype == "float32" else 2e-2, **times)


def check_attention(implementation: str) -> dict[str, Any]:
    """Packed rows with a window in groups of heads; then the time at a length of 4,096."""
    arrays = [normal(i, 2, 320, heads, 64) for i, heads in enumerate((8, 2, 2))]
    segments = (jnp.arange(320) // 100)[None].repeat(2, axis=0)

    def attend(name, arrays):
        call = partial(causal_attention, segment_ids=segments, window=70, implementation=name)
        return with_gradients(call)(*arrays)

    with jax.default_matmul_precision("highest"):
        wanted = attend("reference", [x.astype(jnp.float32) for x in arrays])
    long = [normal(10 + i, 1, 4096, heads, 128) for i, heads in enumerate((16, 4, 4))]
    run = with_gradients(partial(causal_attention, implementation=implementation))
    return outcome(worst_error(attend(implementation, arrays), wanted), 3e-2, ms=milliseconds(run, *long))


def check_cross_entropy(implementation: str) -> dict[str, Any]:
    """A vocabulary that is no multiple of a block; then time and memory at 8,192 tokens and 32,000 words."""

    def compile_at(name, tokens, width, words, dtype):
        arguments = normal(0, tokens, width, dtype=dtype), normal(1, width, words, dtype=dtype)
        targets = jax.random.randint(jax.random.key(2), (tokens,), 0, words)

        def loss(hidden, head):
            return linear_cross_entropy(hidden, head, targets, None, 1e-4, soft_cap=30.0, implementation=name).loss

        return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*arguments).compile(), arguments

    with jax.default_matmul_precision("highest"):
        run, arguments = compile_at(implementation, 500, 128, 9001, "float32")
        found = run(*arguments)
        wanted = compile_at("reference", 500, 128, 9001, "float32")[0](*arguments)
    run, arguments = compile_at(implementation, 8192, 2048, 32_000, "bfloat16")
    figures = {"ms": milliseconds(run, *arguments), "temporary_mib": run.memory_analysis().temp_size_in_bytes / 2**20}
    return outcome(worst_error(found, wanted), 1e-4, **figures)


def check_transport(implementation: str) -> dict[str, Any]:
    """A mixture of experts on a mesh of one device against the dense reference; then the time at 8,192 tokens."""
    mesh = jax.make_mesh((1,) * 4, ("replica", "data", "expert", "model"), (jax.sharding.AxisType.Explicit,) * 4)

    def layer(name, tokens, width, inner, dtype):
        shapes = (width, inner), (width, inner), (inner, width)
        experts = Experts(*(normal(i, 16, *shape, dtype=dtype) for i, shape in enumerate(shapes)))
        weights, chosen = jax.lax.top_k(jax.nn.softmax(jax.random.normal(jax.random.key(5), (tokens, 16))), 4)
        routing = Routing(chosen, weights, None)
        run = with_gradients(lambda x, experts: moe(x, routing, experts, implementation=name)[0])
        return run, (normal(6, tokens, width, dtype=dtype), experts)

    with jax.set_mesh(mesh):
        with jax.default_matmul_precision("highest"):
            run, arguments = layer(implementation, 512, 128, 128, "float32")
            found = run(*arguments)
            wanted = layer("reference", 512, 128, 128, "float32")[0](*arguments)
        run, arguments = layer(implementation, 8192, 2048, 1024, "bfloat16")
        return outcome(worst_error(found, wanted), 2e-5, ms=milliseconds(run, *arguments, rounds=3))


def check_training_step() -> dict[str, Any]:
    """Ten steps on one batch lower the loss; tokens each second of a model of 8 layers of 1,024 in bf16."""
    config = TransformerConfig(
        vocabulary=8192, width=1024, layers=8, heads=8, key_value_heads=4, feed_forward=2816, dtype="bfloat16"
    )
    optimizer, training = OptimizerConfig("adamw", 1e-3), TrainingConfig(steps=100, batch=8, length=1024)
    run, program = Run.of(optimizer, training), Program(optimizer.rule)
    batch = Batch(jax.random.randint(jax.random.key(0), (8, 1025), 0, 8192))
    state = initial_state(0, run.hyperparameters, config=config, rule=optimizer.rule)
    step = jax.jit(partial(train_step, program=program))
    losses = []
    for _ in range(10):
        state, metrics = step(state, batch, run)
        losses.append(float(metrics.loss))
    taken = milliseconds(step, state, batch, run)
    learned = bool(np.isfinite(losses).all() and losses[-1] < losses[0])
    return {"passed": learned, "losses": losses, "ms": taken, "tokens_per_second": round(8 * 1024 / taken * 1e3)}


def checks() -> Iterator[Check]:
    """What is checked, the cheapest and most telling first."""
    libraries = ("tokamax",) if find_spec("tokamax") else ()
    kernels = [("ragged_dot", "bfloat16"), ("pallas_triton", "bfloat16"), ("mosaic_gpu", "bfloat16")]
    for name, dtype in [*kernels, ("pallas_triton", "float32"), *((library, "bfloat16") for library in libraries)]:
        yield f"grouped matmul, {name}, {dtype}", partial(check_grouped_matmul, name, dtype)
    for name in ("folded", "blockwise", *libraries):
        yield f"attention, {name}", partial(check_attention, name)
    for name in ("chunked", "blocked"):
        yield f"cross-entropy, {name}", partial(check_cross_entropy, name)
    yield "training step", check_training_step
    for name in get_args(ExpertParallelImplementation):
        if name not in ("reference", "fused_tpu"):
            yield f"mixture of experts, {name}", partial(check_transport, name)


def attempt(check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A check's outcome; what it raised is one too."""
    try:
        return check()
    except Exception as error:  # the report tells of every path, also after one that failed
        raised = f"{type(error).__name__}: {error}"[:2000]
        return {"passed": False, "raised": raised, "at": traceback.format_exc()[-2000:]}


def report(which: str) -> dict[str, Any]:
    """Run the checks whose names contain a text."""
    device, began = jax.devices()[0], time.monotonic()
    found: dict[str, Any] = {}
    for name, check in checks():
        if which not in name:
            continue
        start = time.monotonic()
        late = start - began > BUDGET
        found[name] = {"passed": False, "raised": "no time was left"} if late else attempt(check)
        found[name]["seconds"] = round(time.monotonic() - start, 1)
        print(f"{'passed' if found[name]['passed'] else 'FAILED'}  {name}  {json.dumps(found[name])[:300]}", flush=True)
    return {
        "device": device.device_kind,
        "jax": jax.__version__,
        "seconds": round(time.monotonic() - began, 1),
        "passed": bool(found) and all(each["passed"] for each in found.values()),
        "checks": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("gpu_check.json"), help="where the report is written")
    parser.add_argument("--only", default="", help="run only checks whose names contain this")
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        print(f"gpu_check: no GPU here: JAX runs on {jax.default_backend()}; nothing was checked", file=sys.stderr)
        return 2
    found = report(options.only)
    options.report.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{'passed' if found['passed'] else 'FAILED'} in {found['seconds']} s on {found['device']}: {options.report}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
