import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.tokenizers import Tokenizer, byte_characters, byte_tokenizer, train_bpe

odd = st.sampled_from(
    ["\ud800", "\udfff", "\x00", "\ufeff", "\u0301", "👩‍👩‍👧", "<|endoftext|>", "\r\n", "   ", "ſ", "𐍈"]
)
texts = st.text() | st.lists(st.text(max_size=5) | odd).map("".join)


@pytest.fixture(scope="module")
def bpe(corpus_of, prose):
    return train_bpe.function([corpus_of(prose)], vocabulary=300)


@pytest.fixture(scope="module")
def tokenizers(bpe):
    return [byte_tokenizer.function(), bpe]


@given(texts)
def test_decoding_gives_back_every_text(tokenizers, text):
    for tokenizer in tokenizers:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(texts)
def test_the_bytes_of_the_tokens_are_those_of_the_text(tokenizers, text):
    for tokenizer in tokenizers:
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode("utf-8", "surrogatepass")


@given(texts)
def test_no_text_holds_the_end_of_a_document(tokenizers, text):
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32
        assert ((ids >= 0) & (ids < tokenizer.end_of_document)).all()


@given(st.lists(texts))
def test_encoding_many_is_encoding_each(tokenizers, many):
    for tokenizer in tokenizers:
        for text, ids in zip(many, tokenizer.encode_many(many), strict=True):
            assert ids.tolist() == tokenizer.encode(text).tolist()


def test_encoding_many_reads_texts_as_they_are_needed(tokenizers):
    for tokenizer in tokenizers:
        endless = (str(number) for number in itertools.count())
        assert tokenizer.decode(next(tokenizer.encode_many(endless))) == "0"


def test_batches_keep_the_order_of_more_texts_than_one_holds(tokenizers):
    many = [str(number) for number in range(150)]
    for tokenizer in tokenizers:
        assert [tokenizer.decode(ids) for ids in tokenizer.encode_many(iter(many))] == many


@given(st.lists(st.integers(0, 256)))
def test_every_list_of_tokens_has_a_text_which_can_be_written_or_encoded_again(tokenizers, ids):
    for tokenizer in tokenizers:
        text = tokenizer.decode(ids)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_broken_utf8_becomes_the_replacement_character(tokenizers):
    assert byte_tokenizer.function().decode([0x61, 0xFF, 0x62]) == "a\ufffdb"


def test_the_end_of_a_document_has_no_text(tokenizers):
    for tokenizer in tokenizers:
        ids = [*tokenizer.encode("a").tolist(), tokenizer.end_of_document]
        assert tokenizer.decode(ids) == "a"


@pytest.mark.parametrize("token", [-1, 257, 10**6])
def test_a_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(
        ValueError, match=f"token {token} lies outside the vocabulary of 257; decode with the tokenizer"
    ):
        byte_tokenizer.function().decode([token])


def test_byte_tokens_are_the_bytes():
    tokenizer = byte_tokenizer.function()
    assert tokenizer.encode("é!").tolist() == [0xC3, 0xA9, 0x21]
    assert (tokenizer.kind, tokenizer.vocabulary, tokenizer.end_of_document) == ("bytes", 257, 256)
    assert tokenizer.model is None


def test_a_trained_tokenizer_writes_what_it_was_trained_on_in_fewer_tokens(bpe, prose):
    assert (bpe.kind, bpe.vocabulary, bpe.end_of_document) == ("bpe", 300, 299)
    text = "".join(prose)
    assert len(bpe.encode(text)) < 0.5 * len(text)


def test_every_byte_has_a_token_of_its_own_even_when_the_training_text_lacks_it(bpe):
    assert sorted(bpe.decode_bytes([token]) for token in range(256)) == sorted(bytes([value]) for value in range(256))


def test_the_table_of_byte_characters_is_one_to_one():
    table = byte_characters()
    assert sorted(table) == list(range(256))
    assert len(set(table.values())) == 256
    assert (table[ord("a")], table[ord(" ")], table[ord("\n")]) == ("a", "Ġ", "Ċ")


def test_text_with_few_repeated_pairs_gives_a_smaller_vocabulary(corpus_of):
    tokenizer = train_bpe.function([corpus_of(["abab"])], vocabulary=5000)
    assert 257 < tokenizer.vocabulary < 300
    assert tokenizer.end_of_document == tokenizer.vocabulary - 1
    assert tokenizer.decode(tokenizer.encode("abab ß")) == "abab ß"


def test_a_pair_seen_once_is_not_merged(corpus_of):
    assert train_bpe.function([corpus_of(["abc def"])], vocabulary=300).vocabulary == 257


def test_the_smallest_vocabulary_has_no_merge(corpus_of):
    tokenizer = train_bpe.function([corpus_of(["abab"])], vocabulary=257)
    assert len(tokenizer.encode("abab")) == 4


@pytest.mark.parametrize("limit", [None, 900])
def test_training_depends_neither_on_the_order_of_documents_nor_of_corpora(corpus_of, prose, limit):
    orders = [[prose[:20], prose[20:]], [prose[20:], prose[:20]], [prose[::-1]]]
    models = {
        train_bpe.function(
            [corpus_of(texts) for texts in order], vocabulary=320, limit_bytes=limit
        ).model.path.read_bytes()
        for order in orders
    }
    assert len(models) == 1


def test_a_limit_trains_on_less(corpus_of, prose):
    small, whole = (train_bpe.function([corpus_of(prose)], vocabulary=2000, limit_bytes=limit) for limit in (200, None))
    assert small.vocabulary < whole.vocabulary


def test_training_gives_the_same_bytes_in_another_process():
    program = (
        "import hashlib; from library.corpora import pydoc_topics; from library.tokenizers import train_bpe;"
        "model = train_bpe.function([pydoc_topics.function()], vocabulary=1000).model.path.read_bytes();"
        "print(hashlib.sha256(model).hexdigest())"
    )
    digests = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert len(digests[0]) == 65
    assert len(set(digests)) == 1


@pytest.mark.parametrize("vocabulary", [-1, 0, 256])
def test_a_vocabulary_without_room_for_all_bytes_is_refused(corpus_of, vocabulary):
    with pytest.raises(ValueError, match=f"vocabulary={vocabulary}; expected at least 257"):
        train_bpe.function([corpus_of(["a"])], vocabulary=vocabulary)


@pytest.mark.parametrize("count", [0, 2])
def test_training_on_nothing_is_refused(corpus_of, count):
    with pytest.raises(ValueError, match=f"no document in the {count} corpora given"):
        train_bpe.function([corpus_of([])] * count, vocabulary=300)


def test_a_bpe_tokenizer_without_model_says_how_to_make_one():
    with pytest.raises(ValueError, match=r"needs its model, a tokenizer\.json; make it with train_bpe"):
        Tokenizer("bpe", 300, 299).encode("a")
