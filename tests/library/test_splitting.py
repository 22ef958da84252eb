import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.documents import Document, document_id
from library.splitting import EmptySplit, is_held_out, split

ids = st.text(st.characters(codec="utf-8"))
fractions = st.floats(0.01, 0.99)


def ids_of(corpus):
    return [document.id for document in corpus.read()]


def test_both_sides_together_are_the_corpus_and_share_nothing(corpus_of, prose):
    sides = split.function(corpus_of(prose), validation=0.3)
    train, validation = set(ids_of(sides.train)), set(ids_of(sides.validation))
    assert train | validation == {document_id(text) for text in prose}
    assert not train & validation
    assert sides.train.name == sides.validation.name == "words"


@given(st.randoms(use_true_random=False), st.integers(30, 39))
def test_adding_removing_or_moving_documents_moves_no_other(corpus_of, prose, random, size):
    whole = set(ids_of(split.function(corpus_of(prose), validation=0.5).validation))
    assert 10 < len(whole) < 30  # so that the others never empty a side
    some = random.sample(prose, size)
    assert set(ids_of(split.function(corpus_of(some), validation=0.5).validation)) == whole & {
        document_id(text) for text in some
    }


def test_equal_texts_fall_on_the_same_side_whatever_their_source(corpus_of, prose):
    twice = [Document.of(text, source) for text in prose for source in ("a", "b")]
    sides = split.function(corpus_of(twice), validation=0.3)
    assert not set(ids_of(sides.train)) & set(ids_of(sides.validation))


@given(ids, fractions, fractions)
def test_a_larger_fraction_holds_out_what_a_smaller_one_held_out(name, one, other):
    small, large = sorted((one, other))
    assert is_held_out(name, large) or not is_held_out(name, small)


@pytest.mark.parametrize("validation", [0.05, 0.5, 0.9])
def test_the_fraction_is_met_on_average(validation):
    held_out = sum(is_held_out(str(number), validation) for number in range(5000)) / 5000
    assert abs(held_out - validation) < 0.02


def test_another_salt_is_another_split_and_the_default_is_pinned():
    default = [is_held_out(str(number), 0.5) for number in range(64)]
    assert default != [is_held_out(str(number), 0.5, "other") for number in range(64)]
    assert sum(bit << number for number, bit in enumerate(default)) == 12866958903693365437


@pytest.mark.parametrize(("validation", "side"), [(1e-9, "validation"), (1 - 1e-9, "training")])
def test_an_empty_side_is_an_error_that_says_which_and_what_to_do(corpus_of, prose, validation, side):
    with pytest.raises(EmptySplit) as caught:
        split.function(corpus_of(prose), validation=validation)
    message = str(caught.value)
    assert f"corpus 'words': the {side} side of 40 documents is empty at validation={validation}" in message
    assert "another fraction or another salt" in message


def test_an_empty_corpus_cannot_be_split(corpus_of):
    with pytest.raises(EmptySplit, match="of 0 documents is empty"):
        split.function(corpus_of([]), validation=0.5)


@pytest.mark.parametrize("validation", [0, 1, -0.1, 5, float("nan")])
def test_a_fraction_outside_zero_and_one_is_refused(corpus_of, prose, validation):
    with pytest.raises(ValueError, match="expected a fraction between 0 and 1"):
        split.function(corpus_of(prose), validation=validation)
