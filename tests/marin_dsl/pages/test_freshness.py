"""A page that is up to date is not drawn again."""

import attrs
import pytest

from marin_dsl.pages import write_site
from marin_dsl.pages.freshness import is_fresh, mark

from . import example


@pytest.fixture
def written(tmp_path):
    page, evidence = example.page(), example.evidence()
    write_site({"example": (page, evidence)}, tmp_path)
    return tmp_path / "example.html", page, evidence


def test_a_page_made_from_the_same_is_left_as_it_is(written):
    path, page, evidence = written
    before = path.stat().st_mtime_ns
    assert is_fresh(path, mark(page, evidence))
    write_site({"example": (page, evidence)}, path.parent)
    assert path.stat().st_mtime_ns == before


def test_other_content_or_other_evidence_is_drawn(written):
    path, page, evidence = written
    for changed in (
        (attrs.evolve(page, verdict="another"), evidence),
        (page, attrs.evolve(evidence, elapsed=1234.5)),
        (page, attrs.evolve(evidence, seconds={key: value + 1 for key, value in evidence.seconds.items()})),
    ):
        assert not is_fresh(path, mark(*changed))
        write_site({"example": changed}, path.parent)
        assert is_fresh(path, mark(*changed))


def flipped(data: bytes) -> bytes:
    place = len(data) // 3
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[: len(data) // 2], lambda data: b"", flipped]
)
def test_a_page_that_was_cut_or_changed_is_drawn_again(written, damage):
    path, page, evidence = written
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert not is_fresh(path, mark(page, evidence))
    write_site({"example": (page, evidence)}, path.parent)
    assert path.read_bytes() == whole


def test_a_page_that_is_not_there_is_not_fresh(tmp_path):
    assert not is_fresh(tmp_path / "none.html", mark(example.page(), example.evidence()))
