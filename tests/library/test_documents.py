import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.documents import (
    Document,
    DocumentsDamaged,
    document_id,
    read_documents,
    write_documents,
)

texts = st.text(st.characters(codec="utf-8"))
documents = st.lists(st.builds(Document.of, texts, texts))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("documents") / "documents.jsonl"


@given(documents)
def test_documents_come_back_as_they_were_written(file, given_documents):
    write_documents(file, given_documents)
    assert list(read_documents(file)) == given_documents


@given(documents)
def test_equal_documents_are_written_as_equal_bytes(file, given_documents):
    write_documents(file, given_documents)
    first = file.read_bytes()
    write_documents(file, list(given_documents))
    assert file.read_bytes() == first


@given(documents)
def test_writing_counts_documents_and_utf8_bytes(file, given_documents):
    assert write_documents(file, given_documents) == (
        len(given_documents),
        sum(len(document.text.encode()) for document in given_documents),
    )


def test_each_document_is_one_line_whatever_newlines_it_holds(file):
    write_documents(file, [Document.of("a\nb\r\n\u2028c", "x"), Document.of("d", "y")])
    assert file.read_bytes().count(b"\n") == 2
    assert b"\r" not in file.read_bytes()


def test_a_line_has_the_keys_id_source_and_text_in_this_order_and_utf8(file):
    write_documents(file, [Document.of("é", "x")])
    assert file.read_text("utf-8") == f'{{"id": "{document_id("é")}", "source": "x", "text": "é"}}\n'


def test_an_id_follows_from_the_text_alone_and_is_pinned():
    assert Document.of("a", "x").id == Document.of("a", "y").id
    assert document_id("a") == "ca978112ca1bbdcafac231b39a23dc4d"


@given(texts, texts)
def test_different_texts_have_different_ids(one, other):
    assert (document_id(one) == document_id(other)) == (one == other)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "1", "source"', "not JSON in UTF-8"),
        (b"\n", "not JSON in UTF-8"),
        (b'{"id": "\xff", "source": "", "text": ""}', "not JSON in UTF-8"),
        (b"[1]", "a JSON list"),
        (b'{"id": "1", "text": "a"}', "the keys ['id', 'text']"),
        (b'{"id": "1", "text": "a", "source": "s", "year": 1}', "'year'"),
        (b'{"id": "1", "text": null, "source": "s"}', "'text' is None, not a string"),
    ],
)
def test_a_damaged_line_is_named_by_file_and_number(file, line, reason):
    write_documents(file, [Document.of("good", "x")])
    file.write_bytes(file.read_bytes() + line)
    reading = read_documents(file)
    assert next(reading).text == "good"
    with pytest.raises(DocumentsDamaged) as caught:
        next(reading)
    message = str(caught.value)
    assert f"{file} line 2: " in message
    assert reason in message
    assert "expected one JSON object with the strings 'id', 'source' and 'text'" in message
    assert "evaluate the corpus again" in message


def test_every_cut_inside_a_file_is_noticed(corpus_of, file):
    corpus = corpus_of(["one\n", "two\n"])
    whole = corpus.documents.path.read_bytes()
    for length in range(len(whole) - 1):
        file.write_bytes(whole[:length])
        cut = attrs.evolve(corpus, documents=type(corpus.documents).of(file))
        with pytest.raises(DocumentsDamaged, match="evaluate the corpus again"):
            list(cut.read())


def test_a_corpus_with_fewer_documents_than_recorded_says_both_counts(corpus_of):
    corpus = attrs.evolve(corpus_of(["one", "two"]), count=3)
    with pytest.raises(DocumentsDamaged, match=r"'words': found 2 documents of 6 bytes in .*, expected 3 of 6"):
        list(corpus.read())


def test_a_corpus_with_other_texts_than_recorded_says_both_sizes(corpus_of):
    corpus = attrs.evolve(corpus_of(["one", "two"]), bytes=7)
    with pytest.raises(DocumentsDamaged, match=r"found 2 documents of 6 bytes in .*, expected 2 of 7"):
        list(corpus.read())


def test_a_lone_surrogate_is_refused_with_its_place(file):
    with pytest.raises(ValueError, match=r"speech: character 2 is the lone surrogate '\\ud800'.*errors='replace'"):
        write_documents(file, [Document("0", "ab\ud800", "speech")])
    with pytest.raises(ValueError, match="lone surrogate"):
        document_id("\udfff")


def test_a_corpus_keeps_licence_and_attribution_when_it_holds_other_documents(corpus_of):
    corpus = corpus_of(["one", "two"])
    other = corpus.holding([Document.of("three", "x")])
    assert (other.name, other.licence, other.attribution) == (corpus.name, corpus.licence, corpus.attribution)
    assert (other.count, other.bytes) == (1, 5)
    assert [document.text for document in corpus.read()] == ["one", "two"]
