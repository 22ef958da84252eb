import hashlib
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.documents import Document
from library.token_store import (
    SCHEMA,
    TokenStoreDamaged,
    open_token_store,
    tokenize,
    write_token_store,
)
from library.tokenizers import Tokenizer, byte_tokenizer, train_bpe

FILES = ("tokens.bin", "offsets.bin", "bytes.bin", "ledger.json")
texts = st.lists(st.text(st.characters(codec="utf-8")))


@pytest.fixture(scope="module")
def byte_values():
    return byte_tokenizer.function()


@pytest.fixture(scope="module")
def bpe(corpus_of, prose):
    return train_bpe.function([corpus_of(prose)], vocabulary=300)


@pytest.fixture
def small(tmp_path, byte_values):
    """A store of three short documents."""
    folder = tmp_path / "store"
    write_token_store(folder, [Document.of(text, "x") for text in ("ab", "é", "")], byte_values)
    return folder


def message_of_opening(store, **how):
    with pytest.raises(TokenStoreDamaged) as caught:
        open_token_store(store, **how)
    return str(caught.value)


def reseal(folder, **changes):
    """Write a ledger with other contents and a checksum that fits, as another version might."""
    ledger = json.loads((folder / "ledger.json").read_bytes()) | changes
    del ledger["sha256"]

    def spelled(value):
        return json.dumps(value, sort_keys=True, indent=1).encode() + b"\n"

    ledger["sha256"] = hashlib.sha256(spelled(ledger)).hexdigest()
    (folder / "ledger.json").write_bytes(spelled(ledger))


@given(texts)
def test_a_store_gives_back_every_text_in_order(corpus_of, byte_values, bpe, given_texts):
    for tokenizer in (byte_values, bpe):
        opened = open_token_store(tokenize.function(corpus_of(given_texts), tokenizer))
        assert [tokenizer.decode(ids) for ids in opened.documents()] == given_texts
        assert opened.byte_lengths.tolist() == [len(text.encode()) for text in given_texts]
        assert len(opened) == len(given_texts)


@given(texts)
def test_each_document_ends_with_the_end_of_document_and_holds_no_other(corpus_of, bpe, given_texts):
    store = tokenize.function(corpus_of(given_texts), bpe)
    opened = open_token_store(store)
    for ids in opened.documents():
        assert ids[-1] == store.end_of_document
        assert (ids[:-1] < store.end_of_document).all()


@given(texts)
def test_offsets_divide_the_tokens_without_gap(corpus_of, byte_values, given_texts):
    store = tokenize.function(corpus_of(given_texts), byte_values)
    opened = open_token_store(store)
    assert opened.offsets[0] == 0
    assert opened.offsets[-1] == len(opened.tokens) == store.tokens
    assert (np.diff(opened.offsets.astype(np.int64)) >= 1).all()
    assert (store.documents, store.bytes) == (len(given_texts), sum(opened.byte_lengths.tolist()))


def test_a_store_made_twice_has_the_same_bytes(corpus_of, prose, bpe):
    one, other = (tokenize.function(corpus_of(prose), bpe).files.path for _ in range(2))
    assert one != other
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_the_files_are_little_endian_and_as_wide_as_documented(small):
    assert (small / "tokens.bin").read_bytes().hex() == "610062000001" + "c300a9000001" + "0001"
    assert (small / "offsets.bin").read_bytes() == b"".join(n.to_bytes(8, "little") for n in (0, 3, 6, 7))
    assert (small / "bytes.bin").read_bytes() == b"".join(n.to_bytes(8, "little") for n in (2, 2, 0))


def test_the_ledger_says_what_the_store_holds(small, corpus_of, prose, bpe):
    ledger = open_token_store(small).ledger
    assert (ledger["schema"], ledger["documents"], ledger["tokens"], ledger["bytes"]) == (SCHEMA, 3, 7, 4)
    assert ledger["end_of_document"] == {"id": 256, "policy": "after each document"}
    assert ledger["tokenizer"] == {"kind": "bytes", "digest": None}
    tokens = (small / "tokens.bin").read_bytes()
    assert ledger["files"]["tokens.bin"] == {"size": 14, "sha256": hashlib.sha256(tokens).hexdigest()}
    with_model = open_token_store(tokenize.function(corpus_of(prose), bpe)).ledger
    assert with_model["tokenizer"] == {"kind": "bpe", "digest": bpe.model.digest}


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_tokens_take_two_bytes_while_the_vocabulary_fits(tmp_path, vocabulary, dtype):
    tokenizer = Tokenizer("bytes", vocabulary, vocabulary - 1)
    write_token_store(tmp_path / "store", [Document.of("a", "x")], tokenizer)
    tokens = open_token_store(tmp_path / "store").tokens
    assert tokens.dtype == dtype
    assert tokens.tolist() == [97, vocabulary - 1]


def test_tokens_are_mapped_not_read_and_cannot_be_written(small):
    tokens = open_token_store(small).tokens
    assert isinstance(tokens, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 1


def test_a_store_opens_from_its_value_its_directory_a_path_or_a_string(corpus_of, byte_values):
    store = tokenize.function(corpus_of(["abc"]), byte_values)
    for way in (store, store.files, store.files.path, str(store.files.path)):
        assert open_token_store(way).document(0).tolist() == [97, 98, 99, 256]


@pytest.mark.parametrize("index", [-1, 3])
def test_a_document_that_is_not_there_says_how_many_there_are(small, index):
    with pytest.raises(IndexError, match=f"document {index} of 3; expected an index from 0 to 2"):
        open_token_store(small).document(index)


def test_a_folder_that_exists_is_not_written_over(small, byte_values):
    with pytest.raises(FileExistsError):
        write_token_store(small, [], byte_values)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_place_is_noticed_even_without_verification(small, name, verify):
    whole = (small / name).read_bytes()
    for length in range(len(whole)):
        (small / name).write_bytes(whole[:length])
        assert str(small / name) in message_of_opening(small, verify=verify)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_is_noticed(small, name):
    whole = (small / name).read_bytes()
    for place in range(len(whole)):
        (small / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert str(small / name) in message_of_opening(small)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_with_what_to_do(small, name):
    (small / name).unlink()
    message = message_of_opening(small, verify=False)
    assert f"{small / name}: found no such file, expected " in message
    assert "run `marin verify`" in message
    assert "evaluate the tokens again" in message


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_something_added_is_noticed(small, name):
    with (small / name).open("ab") as file:
        file.write(b"\0")
    assert str(small / name) in message_of_opening(small, verify=False)


def test_a_cut_file_says_what_was_found_and_expected(small):
    (small / "tokens.bin").write_bytes((small / "tokens.bin").read_bytes()[:5])
    message = message_of_opening(small)
    assert message == (
        f"{small / 'tokens.bin'}: found 5 bytes, expected 14; the store was changed or cut: run `marin verify` to find "
        "what else is damaged, and evaluate the tokens again"
    )


def test_an_altered_file_says_both_checksums(small):
    was = hashlib.sha256((small / "bytes.bin").read_bytes()).hexdigest()
    (small / "bytes.bin").write_bytes(bytes(24))
    now = hashlib.sha256(bytes(24)).hexdigest()
    assert f"bytes.bin: found SHA-256 {now}, expected {was}; " in message_of_opening(small)


def test_an_altered_file_of_the_right_size_passes_only_without_verification(small):
    (small / "bytes.bin").write_bytes(bytes(24))
    assert open_token_store(small, verify=False).byte_lengths.tolist() == [0, 0, 0]


def test_a_ledger_that_was_edited_by_hand_is_noticed(small):
    path = small / "ledger.json"
    path.write_text(path.read_text().replace('"documents": 3', '"documents": 2'))
    assert "contents that differ from the checksum" in message_of_opening(small)


@pytest.mark.parametrize("contents", [b"[]", b"3", b'{"schema": 1}', b'{"schema": "1"}', b"{}"])
def test_a_ledger_of_another_shape_is_noticed(small, contents):
    (small / "ledger.json").write_bytes(contents)
    assert "ledger.json: found contents that differ" in message_of_opening(small)


def test_a_store_of_a_newer_schema_asks_for_an_upgrade(small):
    reseal(small, schema=SCHEMA + 1, compression="zstd")
    message = message_of_opening(small)
    assert f"ledger.json: found schema {SCHEMA + 1}, expected at most {SCHEMA}" in message
    assert "upgrade marin-dsl" in message


def test_resealing_alone_does_no_harm(small):
    reseal(small)
    assert len(open_token_store(small)) == 3


def test_a_folder_that_is_no_token_store_says_so(tmp_path):
    assert "ledger.json: found no such file, expected a token store's ledger.json" in message_of_opening(tmp_path)


def test_a_store_moved_elsewhere_opens_there(small, tmp_path):
    shutil.move(small, tmp_path / "elsewhere")
    assert open_token_store(tmp_path / "elsewhere").document(1).tolist() == [0xC3, 0xA9, 256]
