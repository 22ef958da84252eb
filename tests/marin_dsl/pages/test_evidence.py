"""Evidence adds up costs and refuses contradictions."""

import subprocess
import sys

import attrs
import pytest

from marin_dsl.pages import Evidence, NodeEvidence
from marin_dsl.pages.evidence import Cost

from . import example


def node(key: str, **facts) -> NodeEvidence:
    return NodeEvidence(key, "a.b", key, **{"status": "ok", **facts})


def evidence(*nodes: NodeEvidence) -> Evidence:
    return Evidence("t", "c", nodes, "root")


def test_the_whole_cost_counts_every_node_and_this_run_only_those_that_ran():
    record = evidence(
        node("a", seconds=2.0, served=True, flops=10.0),
        node("b", seconds=3.0, peak_memory=7),
        node("c", status="failed", seconds=1.0),
        node("d", status="skipped"),
        node("e", status="inline"),
    )
    assert record.whole == Cost(5, 6.0, 10.0, 7)
    assert record.this_run == Cost(2, 4.0, None, 7)


def test_what_nobody_measured_is_unknown_and_not_zero():
    assert Cost.of((node("a"),)) == Cost(1, 0.0, None, None)


def test_peak_memory_is_the_largest_and_operations_are_the_sum():
    cost = Cost.of((node("a", peak_memory=3, flops=1.0), node("b", peak_memory=5, flops=2.0)))
    assert (cost.peak_memory, cost.flops) == (5, 3.0)


def test_an_unknown_status_is_refused():
    with pytest.raises(ValueError, match="status"):
        node("a", status="running")


def test_the_same_key_twice_is_refused_by_name():
    with pytest.raises(ValueError, match=r"node k \(k\) is given twice.*give each key once"):
        evidence(node("k"), node("k"))


def test_nodes_can_be_asked_for_by_status():
    record = example.evidence()
    assert {n.title for n in record.with_status("failed")} == {"gutenberg", "train adamw 3 0"}
    assert [n.title for n in record.with_status("skipped")] == ["evaluate adamw 3 0"]


def test_evidence_takes_a_list_of_nodes():
    assert isinstance(attrs.evolve(example.evidence(), nodes=list(example.nodes())).nodes, tuple)


def test_importing_pages_brings_neither_bokeh_nor_jinja():
    heavy = {"bokeh", "jinja2", "markupsafe"}
    code = f"import marin_dsl.pages, sys; print({{name.split('.')[0] for name in sys.modules}} & {heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
