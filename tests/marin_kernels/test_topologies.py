"""Topologies: names, what is missing, and that the compilers behind them compile."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilers import GPUS, TPUS, on_compilers
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from marin_kernels import topologies


def test_a_name_that_is_none_of_a_topology_is_refused_with_examples():
    with pytest.raises(ValueError, match=r"no topology is named 'v9:2'; write kind:shape .* such as 'v5p:4x4x4'"):
        topologies.absent_devices("v9:2")


def test_missing_wheels_are_named_with_the_way_to_install_them(monkeypatch):
    monkeypatch.setattr(topologies, "find_spec", lambda module: None)
    with pytest.raises(RuntimeError, match=r"pip install 'marin-dsl\[compilers\]' \(missing: libtpu\)"):
        topologies.absent_devices("v5p:2x2x1")
    with pytest.raises(RuntimeError, match=r"\(missing: jax-cuda13-plugin, jax-cuda13-pjrt\)"):
        topologies.absent_devices("h200:4")


def test_a_missing_parent_package_is_a_missing_wheel(monkeypatch):
    def absent(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(topologies, "find_spec", absent)
    assert set(topologies.missing_compilers()) == {"libtpu", "jax-cuda13-plugin", "jax-cuda13-pjrt"}


def test_an_environment_that_would_look_for_tpus_on_the_network_is_refused(monkeypatch):
    monkeypatch.setattr(topologies, "missing_compilers", lambda kind: ())
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    with pytest.raises(RuntimeError, match="start the process with TPU_SKIP_MDS_QUERY=1"):
        topologies.absent_devices("v5p:2x2x1")


@pytest.mark.parametrize("name", [*TPUS, *GPUS, "v5p:4x4x4", "h100:2x8"])
@on_compilers
def test_a_sharded_product_compiles_for(name):
    devices = topologies.absent_devices(name)
    mesh = Mesh(np.array(devices[:4]), ("x",))
    rows = jax.ShapeDtypeStruct((512, 128), jnp.bfloat16, sharding=NamedSharding(mesh, PartitionSpec("x")))
    compiled = jax.jit(lambda rows: rows.T @ rows).lower(rows).compile()
    assert "all-reduce" in compiled.as_text()
    assert compiled.memory_analysis().output_size_in_bytes >= 128 * 128 * 2


@on_compilers
def test_a_shape_that_no_pod_has_is_refused_by_name():
    with pytest.raises(ValueError, match="the TPU compiler knows no topology 'v5p:3x5x7'"):
        topologies.absent_devices("v5p:3x5x7")


def without_compilers(tmp_path, *options, **environment):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['libtpu'] = None")
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    path = os.pathsep.join([str(tmp_path), kept.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "sharded and v6e"]
    command += options
    environment = {**kept, "PYTHONPATH": path, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--numprocesses", "2", "--dist", "loadfile"]], ids=["alone", "several"])
def test_without_compilers_the_tests_that_need_them_are_left_out_loudly(tmp_path, options):
    told = "COMPILERS TESTS LEFT OUT: 1 tests (no libtpu and CUDA compiler found: make test-all installs them)"
    assert without_compilers(tmp_path, *options).stdout.count(told) == 1


@pytest.mark.long
def test_on_a_build_machine_missing_compilers_are_a_failure(tmp_path):
    result = without_compilers(tmp_path, CI="true")
    assert result.returncode == 1
    assert "install the compilers: pip install 'marin-dsl[compilers]' (missing: libtpu" in result.stdout
    assert "LEFT OUT" not in result.stdout
