"""The modules of a project, packed as they are imported."""

import importlib
import io
import sys
import zipfile

import pytest

from marin_dsl import sources
from marin_dsl.sources import imported_sources, unpacked


@pytest.fixture
def project(tmp_path, monkeypatch):
    files = {
        "ours_top.py": b"x = 1\n", "ours/__init__.py": b"", "ours/part.py": b"y = '\xc3\xa9'\r\n",
        "ours/unused.py": b"",
        "spaces/ours/deep.py": b"z = 1\n", "ours/secrets/key.py": b"KEY = 'hunter2'\n",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("ours_top", "ours.part", "spaces.ours.deep")
    for name in names:
        importlib.import_module(name)
    yield tmp_path
    for name in [each for each in sys.modules if each.partition(".")[0] in ("ours", "ours_top", "spaces")]:
        del sys.modules[name]


def ours():
    return {path: data for path, data in unpacked(imported_sources()).items() if "ours" in path}


def test_what_was_imported_is_there_under_the_path_that_it_is_imported_by(project):
    assert ours() == {
        "ours/__init__.py": b"",
        "ours/part.py": b"y = '\xc3\xa9'\r\n",
        "ours_top.py": b"x = 1\n",
        "spaces/ours/deep.py": b"z = 1\n",
    }


def test_what_is_installed_is_not_there():
    assert not {path.partition("/")[0] for path in unpacked(imported_sources())} & {
        "numpy",
        "marin_dsl",
        "attr",
        "os.py",
    }


def test_the_same_modules_are_the_same_bytes_and_an_edit_is_seen(project):
    one = imported_sources()
    sources._packed.cache_clear()
    assert imported_sources() == one
    (project / "ours_top.py").write_bytes(b"x = 22\n")
    assert ours()["ours_top.py"] == b"x = 22\n"


def test_modules_that_cannot_be_imported_by_their_name_or_are_gone_are_left_out(project, monkeypatch):
    module = sys.modules["ours_top"]
    for name in ("../ours", "ours-odd", "ours odd"):
        monkeypatch.setitem(sys.modules, name, module)
    (project / "ours" / "part.py").unlink()
    assert set(ours()) == {"ours/__init__.py", "ours_top.py", "spaces/ours/deep.py"}


def test_what_looks_as_if_it_held_secrets_is_left_out(project):
    importlib.import_module("ours.secrets.key")
    assert not [path for path, data in ours().items() if b"hunter2" in data]


def test_more_than_there_is_room_for_is_left_out_the_largest_first(project, monkeypatch):
    monkeypatch.setattr(sources, "LIMIT", 0)
    sources._packed.cache_clear()
    assert set(unpacked(imported_sources()).values()) <= {b""}
    sources._packed.cache_clear()


def test_what_is_no_packed_module_is_refused(monkeypatch):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("bomb.py", bytes(sources.LIMIT + 1))
    for data in (b"", b"PK nothing", written.getvalue(), imported_sources()[:-30]):
        with pytest.raises(ValueError, match="packed modules"):
            unpacked(data)
