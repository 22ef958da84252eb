"""How an expression is to be evaluated: what can be said, and that it is no part of what the expression is."""

from __future__ import annotations

import datetime
import math
import pickle

import pytest

from marin_dsl import op
from marin_dsl.evaluation.durations import seconds_of, spelled
from marin_dsl.expression.annotations import Annotations


@op(version="1")
def plain(n: int) -> int:
    return n


@op(version="1", name=f"{__name__}.plain", retries=3, timeout="2h", isolate=True, transient=ConnectionError, priority=2)
def annotated(n: int) -> int:
    return n


def test_no_annotation_enters_the_identity():
    given = plain(1).with_(
        retries=2, timeout="2h", isolate=True, transient=(OSError,), priority=5, resources={"GPU": 1}, hosts=4
    )
    assert given.key == plain(1).key == annotated(1).key
    assert given == plain(1)
    assert given.annotations == Annotations({"GPU": 1}, 5, None, 2, 7200.0, True, (OSError,), None, 4)
    assert op(hosts=2)(plain.function).identity == op(plain.function).identity


def test_an_expression_overrides_what_its_operator_says():
    assert annotated(1).annotations == Annotations({}, 2, None, 3, 7200.0, True, (ConnectionError,))
    found = annotated(1).with_(retries=0, timeout=math.inf, isolate=False, transient=()).annotations
    assert found == Annotations({}, 2, None, 0, math.inf, False, ())
    assert found.limit is None
    assert annotated(1).annotations.limit == 7200.0
    assert plain(1).annotations.limit is None
    assert pickle.loads(pickle.dumps(annotated(1))).annotations == annotated(1).annotations


def test_an_operator_of_no_module_keeps_what_it_says_when_it_travels():
    import cloudpickle

    @op(version="1", retries=1, timeout=3, isolate=True, transient=OSError, resources={"GPU": 1}, hosts=2)
    def local() -> int:
        return 1

    copy = pickle.loads(cloudpickle.dumps(local))
    assert copy.annotations == local.annotations == Annotations({"GPU": 1}, 0, None, 1, 3.0, True, (OSError,), None, 2)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2h", 7200), ("90s", 90), ("1.5m", 90), ("1.5min", 90), ("1d", 86400), ("250ms", 0.25), ("1h 30m", 5400),
        ("1h30m", 5400), (" 2 h ", 7200), (3, 3), (0.5, 0.5), (datetime.timedelta(minutes=2), 120),
        (math.inf, math.inf),
    ],
)  # fmt: skip
def test_lengths_of_time_are_written_in_many_ways(given, seconds):
    assert seconds_of(given) == seconds


@pytest.mark.parametrize(
    "given", ["", "2", "h", "2 fortnights", "1h and 2m", "-1s", "0s", 0, -1, math.nan, True, [1], b"1s"]
)
def test_what_is_no_length_of_time_says_what_is_one(given):
    with pytest.raises(ValueError) as caught:
        plain(1).with_(timeout=given)
    assert str(caught.value) == (
        f"timeout: {given!r} is no length of time; write '90s', '1.5m', '2h', '1d', '1h 30m', a number of seconds or a "
        "datetime.timedelta, more than nothing"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25s"), (2, "2s"), (59.5, "59.5s"), (60, "1m"), (5400, "1h 30m"), (90061, "1d 1h 1m 1s")],
)
def test_seconds_are_spelled_as_they_are_read(seconds, text):
    assert spelled(seconds) == text
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("given", [-1, 1.5, True, "2"])
def test_what_is_no_number_of_retries_is_refused(given):
    with pytest.raises(ValueError, match=r"retries=.*: expected how often to try again, a number like 0, 1 or 2"):
        plain(1).with_(retries=given)


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2"])
def test_what_is_no_number_of_hosts_is_refused(given):
    with pytest.raises(ValueError) as caught:
        plain(1).with_(hosts=given)
    assert str(caught.value) == f"hosts={given!r}: expected how many processes run it together, a number like 1, 2 or 8"
    with pytest.raises(ValueError, match="expected how many processes run it together"):
        op(hosts=given)(plain.function)
    assert plain(1).with_(hosts=3).with_(priority=1).annotations.hosts == 3
    assert plain(1).annotations.hosts == plain(1).with_(hosts=3).with_(hosts=1).annotations.hosts == 1


@pytest.mark.parametrize(
    "given", ["GPU", 1, ["GPU"], {"GPU": math.nan}, {"GPU": math.inf}, {"GPU": -1}, {"GPU": "1"}, {"GPU": True}, {1: 1}]
)
def test_what_is_no_amount_of_a_resource_is_refused(given):
    with pytest.raises(TypeError if isinstance(given, (str, int, list)) else ValueError) as caught:
        plain(1).with_(resources=given)
    assert str(caught.value) == (
        f'resources={given!r}: expected what a worker must have free, by name and amount, such as {{"GPU": 1}}'
    )
    with pytest.raises((TypeError, ValueError), match="expected what a worker must have free"):
        op(resources=given)(plain.function)


def test_resources_stay_what_they_were_when_they_were_given():
    wanted = {"GPU": 1}
    given = plain(1).with_(resources=wanted)
    wanted["GPU"] = 8
    assert given.annotations.resources == {"GPU": 1}
    assert given.with_(resources={}).annotations.resources == {}


@pytest.mark.parametrize("given", [math.nan, math.inf, 1.5, True, "1"])
def test_what_is_no_priority_is_refused(given):
    with pytest.raises(TypeError) as caught:
        plain(1).with_(priority=given)
    assert str(caught.value) == f"priority={given!r}: expected a whole number; what has a larger one runs earlier"


def test_other_wrong_annotations_are_refused():
    with pytest.raises(TypeError, match="title=3: expected text"):
        plain(1).with_(title=3)
    with pytest.raises(TypeError, match="source=3: expected text"):
        plain(1).with_(source=3)
    with pytest.raises(TypeError, match="isolate=1: expected True or False"):
        plain(1).with_(isolate=1)
    with pytest.raises(
        TypeError, match=r"transient: expected classes of exceptions, such as \(ConnectionError,\), and"
    ):
        op(transient=("ConnectionError",))(plain.function)
