"""`marin topology`: what a training step costs on a pod, told by the pod's own compiler on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click

Answer = dict[str, Any]
AXES = ("replica", "data", "expert", "model")


@click.command(short_help="what a training step costs on TPUs or GPUs that are not here")
@click.argument("name", metavar="TOPOLOGY")
@click.option("--model", required=True, metavar="SIZE", help="A named size, such as moe-32b-a5b.")
@click.option("--batch", type=click.IntRange(min=1), required=True, help="Rows per step, on all devices together.")
@click.option("--length", type=click.IntRange(min=1), default=4096, show_default=True, help="Tokens of a row.")
@click.option(
    "--mesh", "meshes", metavar="AXIS=N,...", multiple=True, required=True,
    help="Sizes of the axes replica, data, expert, model; several times to compare meshes.",
)  # fmt: skip
@click.option("--optimizer", default="muon", show_default=True, help="adamw, muon, muonh or adamh.")
@click.option("--micro-batches", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--expert-parallel", metavar="NAME", help="Implementation of mixtures of experts. Default: ring.")
@click.option("--capacity-factor", type=click.FloatRange(min=0, min_open=True), help="Of mixtures. Default: dropless.")
@click.option("--remat", metavar="NAME", help="none, full or save_moe. Default: as the model has it.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds per mesh.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: a list with one plan per mesh.")
def topology(
    name: str,
    model: str,
    batch: int,
    length: int,
    meshes: tuple[str, ...],
    optimizer: str,
    micro_batches: int,
    expert_parallel: str | None,
    capacity_factor: float | None,
    remat: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Compile the training step of a model for TOPOLOGY, and tell what it costs and whether it fits.

    TOPOLOGY is a kind of chip and a shape: v4, v5e, v5p, v6e or tpu7x and the chips along each axis (v5p:4x4x4), or
    h100 or h200 and the GPUs (h200:8). The compilers are the extra `compilers` of marin-dsl; no device is needed.

    Times are least times at the makers' documented rates: real steps take longer. Collectives in loops of unknown
    length are counted once, and the network is taken as used evenly over all its links.

    Example: marin topology v5p:4x4x4 --model moe-32b-a5b --batch 256 --mesh data=8,expert=8
    """
    given = {
        "topology": name,
        "model": model,
        "batch": batch,
        "length": length,
        "optimizer": optimizer,
        "micro_batches": micro_batches,
        "expert_parallel": expert_parallel,
        "capacity_factor": capacity_factor,
        "remat": remat,
    }
    requests = [(text, {**given, "mesh": parse_mesh(text)}) for text in meshes]
    answers, refused = [], {}
    for text, request in requests:
        if not as_json:
            click.echo(f"compiling for {name}, mesh {text} ...", err=True)
        try:
            answers.append((text, compiled(request, timeout)))
        except click.ClickException as error:  # what was found of other meshes took minutes
            refused[text] = error.message
            if not as_json:
                click.echo(f"mesh {text}: cannot be planned: {error.message}\n")
        else:
            if not as_json:
                click.echo("\n".join(described(*answers[-1])) + "\n")
    if as_json:
        found = [{"mesh": text, **answer} for text, answer in answers]
        click.echo(json.dumps([*found, *({"mesh": text, "refused": why} for text, why in refused.items())]))
    elif len(answers) > 1:
        click.echo("\n".join(table(answers)))
    if refused:
        raise click.exceptions.Exit(1)


def parse_mesh(text: str) -> dict[str, int]:
    """The sizes of the axes in ``data=8,expert=8``.

    Raises:
        click.BadParameter: it is not written so.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        axis, _, count = part.strip().partition("=")
        if axis not in AXES or axis in found or not count.isdecimal() or not int(count):
            raise click.BadParameter(
                f"{text!r} is no mesh at {part!r}; write axes once each, of replica, data, expert and model, with "
                "their sizes, such as data=8,expert=8",
                param_hint="--mesh",
            )
        found[axis] = int(count)
    return found


def compiled(request: dict[str, Any], timeout: float) -> Answer:
    """The plan of one mesh, from a process of its own.

    Raises:
        click.ClickException: the compiler is missing, refused, died, or took too long.
    """
    # The compilers' own variables: set for them alone; several may be at work on one machine.
    from marin_kernels.topologies import ENVIRONMENT

    environment = {**os.environ, **ENVIRONMENT, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "marin_models.pod_plan"]
    try:
        done = subprocess.run(
            command, input=json.dumps(request), env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise click.ClickException(
            f"the compiler took longer than {timeout:g} s for mesh {request['mesh']}; give --timeout more, or a "
            "smaller model"
        ) from None
    if done.returncode:
        raise click.ClickException(_reason(done))
    return json.loads(done.stdout.strip().splitlines()[-1])


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a process ended; where a signal killed it, what it printed before is not why."""
    if done.returncode < 0:
        memory = "; most likely the machine ran out of memory" if done.returncode == -signal.SIGKILL else ""
        return f"the compiler's process ended with {done.returncode}: a signal killed it{memory}"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the compiler's process ended with {done.returncode}"


def described(mesh: str, answer: Answer) -> list[str]:
    """A plan in lines for people."""
    seconds = answer["seconds"]
    bound = binding(answer)
    parts = f"arguments {gigabytes(answer['arguments'])}, temporary {gigabytes(answer['temporary'])}"
    lines = [
        f"mesh {mesh}: {answer['devices']} devices, {verdict(answer)}",
        f"  memory per device  {gigabytes(answer['memory'])} of {gigabytes(answer['capacity'])} ({parts})",
        f"  FLOPs per device   {answer['flops']:.3g}, of them {answer['model_flops']:.3g} of the model",
    ]
    if answer["error"]:
        return [*lines, f"  the compiler says  {answer['error'][:300]}"]
    for one in answer["collectives"]:
        lines.append(
            f"  {one['kind']:<18} {one['count']:>6} times, {gigabytes(one['bytes'])} a device, "
            f"{gigabytes(one['wire_bytes'])} sent"
        )
    if answer["unknown_loops"]:
        lines.append(f"  loops of unknown length, counted once: {answer['unknown_loops']}")
    times = ", ".join(f"{name} {1000 * value:.3g} ms" for name, value in seconds.items())
    lines.append(f"  least times        {times}: bound by {bound}")
    lines.append(
        f"  at best            {answer['tokens'] / seconds[bound]:.3g} tokens/s, MFU "
        f"{utilization(answer):.0%}; compiled in {answer['compile_seconds']:.0f} s"
    )
    return lines


def table(answers: Sequence[tuple[str, Answer]]) -> list[str]:
    """The meshes beside each other, the best first: those that fit, by the least time of a step."""
    ordered = sorted(answers, key=lambda pair: (not fits(pair[1]), pair[1]["seconds"][binding(pair[1])]))
    width = max(len(text) for text, _ in ordered)
    lines = [f"{'mesh':<{width}}  {'memory':>9}  {'step ≥':>9}  {'bound':<8} {'MFU ≤':>6}"]
    for text, answer in ordered:
        bound = binding(answer)
        time = f"{1000 * answer['seconds'][bound]:.3g} ms"
        share = f"{utilization(answer):.0%}" if fits(answer) else "-"
        lines.append(
            f"{text:<{width}}  {gigabytes(answer['memory']):>9}  {time:>9}  {bound:<8} {share:>6}  {verdict(answer)}"
        )
    best = ordered[0]
    lines.append(
        f"best: {best[0]}" if fits(best[1]) else "none of these meshes fits; use more devices or micro-batches"
    )
    return lines


def fits(answer: Answer) -> bool:
    """Whether the memory suffices."""
    return not answer["error"] and answer["memory"] <= answer["capacity"]


def verdict(answer: Answer) -> str:
    """Whether it fits, in words."""
    return "fits" if fits(answer) else "DOES NOT FIT"


def binding(answer: Answer) -> str:
    """Which of compute, memory and network takes the longest."""
    return max(answer["seconds"], key=answer["seconds"].__getitem__)


def utilization(answer: Answer) -> float:
    """The model's share of the arithmetic that the least time of a step would allow."""
    again = answer["model_flops"] / answer["flops"]
    return again * answer["seconds"]["compute"] / answer["seconds"][binding(answer)]


def gigabytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 2**30:.3g} GiB"
