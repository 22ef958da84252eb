import json
import subprocess
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from library.topology import described, parse_mesh, table, topology

ARGUMENTS = ["v5p:4x4x4", "--model", "dense-1b", "--batch", "64"]


def answer(memory=10, seconds=(2.0, 3.0, 1.0), **changes):
    numbers = {
        "devices": 64, "arguments": 4 * 2**30, "temporary": 5 * 2**30, "memory": memory * 2**30, "capacity": 95 * 2**30,
        "flops": 4e12, "model_flops": 3e12, "unknown_loops": 0, "tokens": 6000, "compile_seconds": 12.0, "error": "",
        "seconds": dict(zip(("compute", "memory", "network"), seconds, strict=True)),
        "collectives": [{"kind": "all-gather", "count": 41, "bytes": 2**30, "wire_bytes": 2**29}],
    }  # fmt: skip
    return {**numbers, **changes}


@pytest.fixture
def processes(monkeypatch):
    """Requests that reach the compiler's process, and what it answers."""
    requests, answers = [], []

    def run(command, **settings):
        requests.append(json.loads(settings["input"]) | {"environment": settings["env"]})
        return answers.pop(0)

    monkeypatch.setattr(subprocess, "run", run)
    return requests, answers


def ended(code=0, out="", error=""):
    return subprocess.CompletedProcess([], code, out, error)


def test_meshes_are_compared_and_the_best_that_fits_is_named(processes):
    requests, answers = processes
    answers += [ended(out=json.dumps(one)) for one in (answer(), answer(memory=200, seconds=(1.0, 1.0, 1.0)))]
    done = CliRunner().invoke(topology, [*ARGUMENTS, "--mesh", "data=64", "--mesh", "data=8,expert=8"])
    assert done.exit_code == 0, done.output
    assert [request["mesh"] for request in requests] == [{"data": 64}, {"data": 8, "expert": 8}]
    assert requests[0]["environment"]["TPU_SKIP_MDS_QUERY"] == "1"
    assert requests[0]["model"] == "dense-1b"
    assert "mesh data=8,expert=8: 64 devices, DOES NOT FIT" in done.output
    assert done.output.strip().endswith("best: data=64")


def test_a_plan_says_what_it_costs_and_what_binds():
    text = "\n".join(described("data=64", answer()))
    assert "memory per device  10 GiB of 95 GiB (arguments 4 GiB, temporary 5 GiB)" in text
    assert "FLOPs per device   4e+12, of them 3e+12 of the model" in text
    assert "all-gather             41 times, 1 GiB a device, 0.5 GiB sent" in text
    assert "compute 2e+03 ms, memory 3e+03 ms, network 1e+03 ms: bound by memory" in text
    assert "2e+03 tokens/s, MFU 50%" in text
    assert "unknown length" not in text
    assert "counted once: 3" in "\n".join(described("data=64", answer(unknown_loops=3)))


def test_what_the_compiler_refuses_is_quoted():
    text = "\n".join(described("data=64", answer(error="RESOURCE_EXHAUSTED: Used 200G of 95G hbm")))
    assert "DOES NOT FIT" in text
    assert "the compiler says  RESOURCE_EXHAUSTED: Used 200G of 95G hbm" in text


def test_where_no_mesh_fits_the_table_says_so():
    assert table([("data=64", answer(memory=200))])[-1].startswith("none of these meshes fits; use more devices")


def test_the_document_for_programs_holds_every_mesh(processes):
    processes[1].append(ended(out="a line of a library\n" + json.dumps(answer())))
    done = CliRunner().invoke(topology, [*ARGUMENTS, "--mesh", "data=64", "--json"])
    assert json.loads(done.output) == [{**answer(), "mesh": "data=64"}]


def test_without_the_compilers_the_extra_is_named(processes):
    reason = "RuntimeError: to compile for v5p:4x4x4, install the compilers: pip install 'marin-dsl[compilers]'"
    processes[1].append(ended(2, error=f"noise\n{reason} (missing: libtpu)\n"))
    done = CliRunner().invoke(topology, [*ARGUMENTS, "--mesh", "data=64"])
    assert done.exit_code == 1
    assert "pip install 'marin-dsl[compilers]' (missing: libtpu)" in done.output


def test_a_compiler_that_dies_or_takes_too_long_is_told(processes, monkeypatch):
    processes[1].append(ended(-9))
    assert (
        "the compiler's process ended with -9" in CliRunner().invoke(topology, [*ARGUMENTS, "--mesh", "data=64"]).output
    )

    def late(command, **settings):
        raise subprocess.TimeoutExpired(command, settings["timeout"])

    monkeypatch.setattr(subprocess, "run", late)
    done = CliRunner().invoke(topology, [*ARGUMENTS, "--mesh", "data=64", "--timeout", "2"])
    assert "took longer than 2 s for mesh {'data': 64}; give --timeout more, or a smaller model" in done.output


def test_a_mesh_that_is_refused_loses_nothing_of_the_others(processes):
    _, answers = processes
    meshes = ["--mesh", "data=64", "--mesh", "data=3", "--mesh", "data=8,expert=8"]
    found = [ended(out=json.dumps(answer())), ended(2, error="ValueError: a mesh of 3 devices"), ended(-9, error="log")]
    answers += found * 2
    done = CliRunner().invoke(topology, [*ARGUMENTS, *meshes])
    assert done.exit_code == 1
    assert "mesh data=64: 64 devices, fits" in done.output
    assert "mesh data=3: cannot be planned: ValueError: a mesh of 3 devices" in done.output
    killed = "ended with -9: a signal killed it; most likely the machine ran out of memory"
    assert f"mesh data=8,expert=8: cannot be planned: the compiler's process {killed}" in done.output
    done = CliRunner().invoke(topology, [*ARGUMENTS, *meshes, "--json"])
    assert done.exit_code == 1
    assert [set(one) & {"mesh", "refused", "devices"} for one in json.loads(done.output)] == [
        {"mesh", "devices"}, {"mesh", "refused"}, {"mesh", "refused"},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["data", "data=x", "pipeline=2", "data=2,data=4", "data=0", ""])
def test_a_mesh_that_is_not_written_as_one_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is no mesh at .* write axes once each, of replica, data, expert"):
        parse_mesh(text)


def test_the_command_is_declared_where_marin_looks_for_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    value = project["entry-points"]["marin.commands"]["topology"]
    assert EntryPoint("topology", value, "marin.commands").load() is topology
