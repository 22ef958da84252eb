"""An experiment given away as a folder, and taken in: the same value, lineage and page; or a clear refusal."""

import hashlib
import os
import uuid

import pytest
from click.testing import CliRunner

from marin_dsl import Store, attempt, evaluate, op, plan, provenance, when
from marin_dsl.command_line import main
from marin_dsl.encoding import parse_digest
from marin_dsl.lineage import every, origins, outcomes
from marin_dsl.lineage.export import ExportRefused, export, import_experiment
from marin_dsl.lineage.subject import Subject, SubjectMissing, subjects
from marin_dsl.pages import Page, Prose, render
from marin_dsl.pages.collect import collect
from marin_dsl.store import StoreUnavailable
from marin_dsl.store.copy import LabelDiverged
from marin_dsl.store.records import read_record, write_record
from marin_dsl.store.verify import verify


@op(version="1")
def words(count: int) -> list[str]:
    """Many words."""
    return ["word"] * count


@op(version="1")
def refuse(reason: str) -> int:
    raise ValueError(reason)


@op(version="1")
def write(parts: list) -> Page:
    return Page("A page", "Is it whole?", "It is.", "Yes.", (Prose("Parts", str(parts)),))


def experiment(reason: str = "not today"):
    many = words(5000)
    return write([words(2), many[0], attempt(refuse(reason)), when(many[0].eq("word"), words(3), words(4))])


@pytest.fixture
def store(monkeypatch) -> Store:
    environment = {
        "python": "3.11.7", "implementation": "CPython", "platform": "here", "processor": "one", "cores": 1,
        "memory": None, "packages": {"attrs": "25.1"}, "commit": "c0ffee", "patch": "diff --git a/x b/x\n",
        "untracked": ["new.py", "large.bin"], "contents": {"new.py": b"y = 2\n", "../outside.py": b"no"}, "digests": {},
    }  # fmt: skip
    monkeypatch.setattr(provenance, "environment", lambda project: environment)
    found = Store(f"memory://export-{uuid.uuid4().hex}")
    evaluate(experiment().named("a-page", "1.0"), store=found, debug=True, note="before the move", target="a.py:page")
    return found


@pytest.fixture
def exported(store, tmp_path):
    folder = tmp_path / "exported"
    export(store, subjects(store, "a-page@1.0"), folder)
    return folder


def test_what_is_imported_has_the_same_value_lineage_and_page(store, exported, tmp_path):
    other = Store(tmp_path / "other")
    moved = import_experiment(exported, other)
    assert moved.labels == ("a-page@1.0",)
    assert moved.missing == ()
    root = experiment()
    seen = []
    value = evaluate(root, store=other, debug=True, watch=seen.append, keep_failures=True).value
    assert value == evaluate(root, store=store, debug=True, keep_failures=True).value
    assert seen[-1]["ran"] == 0
    lineages = [[(b.key, b.title, found) for b, found in outcomes(s, origins(s, root.key))] for s in (store, other)]
    assert lineages[0] == lineages[1]
    assert render(value, collect(other, value, root.key)) == render(value, collect(store, value, root.key))
    assert verify(other).sound


def test_an_export_says_what_it_is_and_how_to_run_it_again(exported):
    readme = (exported / "README.md").read_text()
    for said in (
        "# a-page@1.0", "> before the move", "marin import . --store ../records", "with Python 3.11.7",
        "marin show a-page@1.0 --store ../records", "git clone REPOSITORY ../project",
        "git -C ../project checkout c0ffee", "git -C ../project apply < environment/uncommitted.patch",
        "cp -r environment/untracked/. ../project/", "`large.bin`", "marin run a.py:page --store ../records",
    ):  # fmt: skip
        assert said in readme
    assert (exported / "environment" / "packages.txt").read_text() == "attrs==25.1\n"
    assert (exported / "environment" / "untracked" / "new.py").read_bytes() == b"y = 2\n"
    assert not list(exported.rglob("outside.py"))
    (code,) = (exported / "code").glob("*words.py")
    assert 'return ["word"] * count' in code.read_text()


@pytest.mark.parametrize(("values", "served"), [("root", True), ("none", False)])
def test_only_the_values_that_are_wanted_are_in_an_export(store, tmp_path, values, served):
    folder, other = tmp_path / "exported", Store(tmp_path / "other")
    export(store, subjects(store, "a-page@1.0"), folder, values)
    import_experiment(folder, other)
    assert verify(other).sound
    root = experiment()
    assert {branch.key for branch in every(origins(other, root.key))} == {
        branch.key for branch in every(origins(store, root.key))
    }
    assert (other.result(other.call_of(root.key)) is not None) == served
    assert other.result(words(5000).key) is None
    expected = read_record("experiment.json", (folder / "experiment.json").read_bytes())["expected"]
    assert evaluate(root, store=other, debug=True).digest == expected[f"sha256:{root.key.hex()}"]


def test_what_has_no_label_is_exported_by_its_key(store, tmp_path):
    folder, other = tmp_path / "exported", Store(tmp_path / "other")
    export(store, subjects(store, f"sha256:{words(5000).key.hex()}"), folder)
    assert import_experiment(folder, other).labels == ()
    assert str(plan(words(5000), store=other)).startswith("0 to run")
    assert evaluate(words(5000), store=other, debug=True).value == ["word"] * 5000
    (root,) = read_record("experiment.json", (folder / "experiment.json").read_bytes())["roots"]
    assert parse_digest(root["recipe"]) == words(5000).key


def test_importing_twice_moves_nothing_twice(exported, tmp_path):
    other = Store(tmp_path / "other")
    import_experiment(exported, other)
    again = import_experiment(exported, other)
    assert (again.blobs, again.records) == (0, 0)


def test_a_folder_with_files_is_not_written_into(store, exported):
    with pytest.raises(ExportRefused, match="is there already and not empty: name a new folder"):
        export(store, subjects(store, "a-page@1.0"), exported)


def test_what_was_never_evaluated_cannot_be_exported(store, tmp_path):
    with pytest.raises(SubjectMissing, match="has no record of m:x: evaluate it first"):
        export(store, [Subject("m:x", recipe=words(77).key)], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_label_that_stands_for_something_else_here_is_a_conflict_and_nothing_is_changed(exported, tmp_path):
    other = Store(tmp_path / "other")
    evaluate(words(1).named("a-page", "1.0"), store=other, debug=True)
    before = sorted(path for path in (tmp_path / "other").rglob("*") if path.is_file())
    with pytest.raises(LabelDiverged, match=r"a-page@1\.0 has another history"):
        import_experiment(exported, other)
    assert sorted(path for path in (tmp_path / "other").rglob("*") if path.is_file()) == before


def relisted(folder, change):
    """Change the list of an export as somebody would who writes a right digest to it."""
    record = read_record("experiment.json", (folder / "experiment.json").read_bytes())
    change(record)
    (folder / "experiment.json").write_bytes(write_record("experiment.json", record))


def described(path):
    return [path.stat().st_size, f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"]


def first(folder, pattern):
    return next(path for path in sorted(folder.glob(pattern)) if path.is_file())


HOSTILE = {
    "a blob is damaged": (lambda f: first(f, "store/blobs/*/*").write_bytes(b"x"), "is not what was exported"),
    "a record is damaged": (lambda f: first(f, "store/recipes/*/*").write_bytes(b"x"), "is not what was exported"),
    "a file is missing": (lambda f: first(f, "store/blobs/*/*").unlink(), "is missing: ask for the export again"),
    "a file was added": (lambda f: (f / "store" / "more").touch(), "is no part of the export, remove it"),
    "a link leads outside": (lambda f: (f / "code" / "link").symlink_to("/etc/passwd"), "neither links nor devices"),
    "a pipe": (lambda f: os.mkfifo(f / "store" / "pipe"), "neither links nor devices"),
    "no list": (lambda f: (f / "experiment.json").unlink(), "is no export, or it was not finished"),
    "a damaged list": (lambda f: (f / "experiment.json").write_bytes(b"{}"), "is damaged: ask for the export again"),
    "a path that leads outside": (
        lambda f: relisted(f, lambda r: r["files"].update({"../../outside": [0, "sha256:0"]})),
        "which is not inside the export: do not trust it",
    ),
    "an absolute path": (
        lambda f: relisted(f, lambda r: r["files"].update({"/etc/passwd": [0, ""]})),
        "which is not inside the export",
    ),
    "a label that is no label": (
        lambda f: relisted(f, lambda r: r.update(labels=["../../x@1"])),
        "is no list of an export",
    ),
    "a list of another shape": (lambda f: relisted(f, lambda r: r.update(files=3)), "is no list of an export"),
    "a later version": (lambda f: relisted(f, lambda r: r.update(schema=2)), "has schema 2, and this version reads up"),
    "a label that is not there": (
        lambda f: relisted(f, lambda r: r.update(labels=["b@1.0"])),
        "names b@1.0, which is not",
    ),
    "a root without a key": (lambda f: relisted(f, lambda r: r.update(roots=[{}])), "is no list of an export"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_folder_is_refused_and_nothing_is_written(exported, tmp_path, name):
    spoil, message = HOSTILE[name]
    spoil(exported)
    other = tmp_path / "other"
    with pytest.raises(ExportRefused, match=message):
        import_experiment(exported, Store(other))
    assert not other.exists()


def test_a_blob_whose_content_is_another_is_refused_though_the_list_agrees(exported, tmp_path):
    blob = first(exported, "store/blobs/*/*")
    blob.write_bytes(b"something else")
    path = blob.relative_to(exported).as_posix()
    relisted(exported, lambda record: record["files"].update({path: described(blob)}))
    with pytest.raises(ExportRefused, match=r"store/blobs/.*ask for the export again"):
        import_experiment(exported, Store(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_a_record_that_names_a_run_outside_the_store_reaches_nothing_outside(exported, tmp_path):
    result = first(exported, "store/results/*/*")
    path = result.relative_to(exported).as_posix()
    record = read_record(path.removeprefix("store/"), result.read_bytes())
    record["provenance"]["run"] = "../../../outside"
    result.write_bytes(write_record(path.removeprefix("store/"), record))
    relisted(exported, lambda found: found["files"].update({path: described(result)}))
    other = tmp_path / "deep" / "other"
    with pytest.raises(ExportRefused, match=r"is a record that no store writes \(its `provenance` is no such thing\)"):
        import_experiment(exported, Store(other))
    assert not (tmp_path / "deep").exists()


def test_a_store_of_a_later_version_is_refused(exported, tmp_path):
    path = exported / "store" / "format.json"
    path.write_text('{"schema": 999}')
    relisted(exported, lambda record: record["files"].update({"store/format.json": described(path)}))
    with pytest.raises(StoreUnavailable, match="has schema 999, and this version reads up to 2; upgrade"):
        import_experiment(exported, Store(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


WRONG = (None, 3, "x", [{}], {}, {"digest": "sha256:zz", "inline": None, "leaves": []})
ASKED = (
    ("show", "a-page@1.0"), ("why", "a-page@1.0"), ("lineage", "a-page@1.0", "--json"), ("label", "log", "a-page@1.0"),
    ("log",), ("failures", "--traceback"), ("label", "list"), ("page", "a-page@1.0", "--site", "site"),
)  # fmt: skip


def records_of_each_kind(folder):
    """The first record of each kind in the store of an export, and each of its fields."""
    found = {}
    for path in sorted((folder / "store").rglob("*.*")):
        if not path.is_file():
            continue
        place = path.relative_to(folder / "store").parts
        record = read_record("/".join(place), path.read_bytes())
        if record is not None:
            kind = place[2] if place[0] == "runs" else path.suffix
            found.setdefault((place[0], kind, *sorted(record)), (path, record))
    return [(path, record, name) for path, record in found.values() for name in record]


def test_records_that_no_store_writes_are_refused_or_harm_nobody(exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = 0
    for number, (path, record, name) in enumerate(records_of_each_kind(exported)):
        intact, listed = path.read_bytes(), (exported / "experiment.json").read_bytes()
        place = path.relative_to(exported).as_posix()
        for turn, value in enumerate(WRONG):
            changed = {key: item for key, item in record.items() if key != name}
            said = changed if value is None else changed | {name: value}
            path.write_bytes(write_record(place.removeprefix("store/"), said))
            relisted(exported, lambda found, place=place, path=path: found["files"].update({place: described(path)}))
            target = tmp_path / f"{number}-{turn}"
            try:
                import_experiment(exported, Store(target))
            except ExportRefused as refusal:
                message = str(refusal)
            else:
                for words in ASKED:
                    done = CliRunner().invoke(main, [*words, "--store", str(target)])
                    assert isinstance(done.exception, SystemExit | None), (place, name, value, words, done.exception)
                continue
            assert place in message
            assert not target.exists()
            refused += 1
        path.write_bytes(intact)
        (exported / "experiment.json").write_bytes(listed)
    assert refused > 150
