"""Functions and the text they were compiled from: edited files, reloads, prompts, notebooks, scripts."""

import functools
import importlib
import json
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import marin_dsl
from marin_dsl.code_identity import code_identity
from tests.marin_dsl.code_identity.projects import identity_of, imported

TEXT = "K = 3\n\ndef helper(x):\n    return x < K\n\ndef target(x):\n    return helper(x)\n"
EDITED = TEXT.replace("x < K", "x > K")


def _loaded(package, name="main"):
    return importlib.import_module(f"{package.__name__}.{name}")


def test_a_function_whose_text_changed_since_the_import_is_not_taken_for_the_new_text(tmp_path):
    old, new = (identity_of(tmp_path, text).digest for text in (TEXT, EDITED))
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        Path(main.__file__).write_text(EDITED)
        stale = code_identity(main.target)
    assert stale.digest not in (old, new)
    (sentence,) = stale.opaque
    assert "helper" in sentence
    assert "does not hold the code that is loaded (edited since, or rewritten on import)" in sentence
    assert "its bytecode counts instead, which changes between Pythons" in sentence


def test_two_edits_seen_through_bytecode_differ(tmp_path):
    digests = set()
    for text in (TEXT, EDITED, TEXT.replace("return x < K", "return x < K if x else 0")):
        with imported(tmp_path, {"main.py": text}) as package:
            main = _loaded(package)
            Path(main.__file__).write_text("# all gone\n")
            digests.add(code_identity(main.target).digest)
    assert len(digests) == 3


def test_an_edit_elsewhere_in_the_file_changes_nothing_for_what_is_loaded(tmp_path):
    expected = identity_of(tmp_path, TEXT).digest
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        Path(main.__file__).write_text(f"# moved down\n\n\ndef new():\n    return 0\n\n\n{TEXT}")
        identity = code_identity(main.target)
    assert (identity.digest, identity.opaque) == (expected, ())


def test_a_reload_after_an_edit_of_the_same_size_and_time_gives_the_new_identity(tmp_path):
    expected = identity_of(tmp_path, EDITED).digest
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        first = code_identity(main.target).digest
        linecache.getlines(main.__file__)
        before = os.stat(main.__file__)
        Path(main.__file__).write_text(EDITED)
        os.utime(main.__file__, ns=(before.st_atime_ns, before.st_mtime_ns))
        Path(importlib.util.cache_from_source(main.__file__)).unlink(missing_ok=True)
        main = importlib.reload(main)
        identity = code_identity(main.target)
    assert identity.digest == expected != first
    assert identity.opaque == ()


def test_a_file_that_is_gone_or_no_python_any_more_leaves_the_bytecode(tmp_path):
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        Path(main.__file__).write_text("def (:\n")
        broken = code_identity(main.target)
        Path(main.__file__).unlink()
        gone = code_identity(main.target)
    assert broken.digest == gone.digest
    assert len(broken.opaque) == len(gone.opaque) == 2
    assert "there is no source" in gone.opaque[0]


def _executed(text: str, filename: str = "<string>") -> dict:
    namespace = {"__name__": "__main__"}
    exec(compile(text, filename, "exec", dont_inherit=True), namespace)
    return namespace


def test_without_a_text_the_bytecode_counts_and_what_it_names_too():
    plain, other_body, other_constant, again = (
        code_identity(_executed(text)["target"])
        for text in (TEXT, TEXT.replace("<", "<="), TEXT.replace("K = 3", "K = 4"), TEXT)
    )
    assert len({plain.digest, other_body.digest, other_constant.digest}) == 3
    assert plain.digest == again.digest
    assert len(plain.opaque) == 2
    assert "there is no source (<string>)" in plain.opaque[0]


def test_without_a_text_nested_code_and_closures_count():
    text = (
        "def make(n):\n    def add(x):\n        return [x + n for _ in range(2)]\n    return add\ntarget = make({n})\n"
    )
    one, two = (code_identity(_executed(text.format(n=n))["target"]).digest for n in (1, 2))
    three = code_identity(_executed(text.replace("x + n", "x - n").format(n=1))["target"]).digest
    assert len({one, two, three}) == 3


def test_a_notebook_cell_has_the_identity_that_a_file_would_have(tmp_path):
    filename = "<ipython-input-7-a1b2>"
    linecache.cache[filename] = (len(TEXT), None, TEXT.splitlines(keepends=True), filename)
    identity = code_identity(_executed(TEXT, filename)["target"])
    assert identity.digest == identity_of(tmp_path, TEXT).digest
    assert identity.opaque == ()


def test_a_cell_run_again_with_another_text_has_another_identity():
    filename = "<ipython-input-8-a1b2>"
    digests = []
    for text in (TEXT, EDITED):
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        digests.append(code_identity(_executed(text, filename)["target"]).digest)
    assert digests[0] != digests[1]


def test_a_script_has_the_identity_that_it_has_when_it_is_imported(tmp_path):
    script = tmp_path / "script.py"
    tail = "\nif __name__ == '__main__':\n    from marin_dsl.code_identity import code_identity\n"
    tail += "    import json\n    identity = code_identity(target)\n"
    tail += "    print(json.dumps([identity.digest.hex(), list(identity.listing), identity.opaque]))\n"
    script.write_text(TEXT + tail)
    environment = {**os.environ, "PYTHONPATH": str(Path(marin_dsl.__file__).parents[1])}
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    digest, names, opaque = json.loads(ran.stdout)
    assert digest == identity_of(tmp_path, TEXT).digest.hex()
    assert (names, opaque) == (["__main__.K", "__main__.helper", "__main__.target"], [])


def test_lambdas_on_one_line_are_told_apart(tmp_path):
    lambdas = (
        "lambda x: x + 1",
        "lambda x: x + 2",
        "lambda: 1",
        "lambda: 2",
        "lambda x: x if x else 3",
        "lambda x: lambda: 3",
    )
    names = [f"f{number}" for number in range(len(lambdas))]
    text = f"{', '.join(names)} = ({'), ('.join(lambdas)})\n"
    identities = [identity_of(tmp_path, text, name) for name in names]
    assert len({identity.digest for identity in identities}) == len(lambdas)
    assert [identity.opaque for identity in identities] == [()] * len(lambdas)
    alone = identity_of(tmp_path, "second = lambda x: x + 2\n", "second")
    assert alone.digest == identities[1].digest


def test_a_lambda_inside_a_call_over_several_lines_is_found(tmp_path):
    text = "from functools import partial as p\ntarget = p(\n    lambda x, y: (\n        x\n        + y\n    ), y=1)\n"
    identity = identity_of(tmp_path, text)
    assert identity.opaque == ()
    assert identity.digest != identity_of(tmp_path, text.replace("+ y", "- y")).digest


def test_a_function_defined_twice_is_the_one_that_is_bound(tmp_path):
    text = "def target(x):\n    return 1\n\nold = target\n\ndef target(x):\n    return 2\n"
    assert identity_of(tmp_path, text).digest == identity_of(tmp_path, "def target(x):\n    return 2\n").digest
    assert identity_of(tmp_path, text, "old").digest == identity_of(tmp_path, "def target(x):\n    return 1\n").digest


def test_a_text_in_another_encoding_is_read(tmp_path):
    with imported(tmp_path, {"main.py": ""}) as package:
        place = Path(package.__file__).with_name("latin.py")
        place.write_bytes("# -*- coding: latin-1 -*-\ndef target():\n    return 'é'\n".encode("latin-1"))
        identity = code_identity(_loaded(package, "latin").target)
    assert identity.opaque == ()
    assert identity.digest == identity_of(tmp_path, "def target():\n    return 'é'\n").digest


def test_a_rewritten_code_object_is_seen(tmp_path):
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        before = code_identity(main.target)
        main.helper.__code__ = (lambda x: x > 7).__code__
        after = code_identity(main.target)
    assert before.digest != after.digest


def test_a_patched_function_counts_as_what_it_was_patched_with(tmp_path):
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        before = code_identity(main.target).digest
        main.helper = functools.partial(main.helper, 1)
        assert code_identity(main.target).digest != before


def test_a_constant_counts_with_the_value_it_has_when_asked(tmp_path):
    with imported(tmp_path, {"main.py": TEXT}) as package:
        main = _loaded(package)
        main.K = 4
        changed = code_identity(main.target).digest
    assert changed == identity_of(tmp_path, TEXT.replace("K = 3", "K = 4")).digest


def test_a_decorated_nested_function_is_found(tmp_path):
    text = """
    import functools

    def twice(function):
        return functools.lru_cache(function)

    def make():
        @twice
        @twice
        def inner(x):
            return x + {n}
        return inner

    target = make()
    """
    one, two = (identity_of(tmp_path, textwrap.dedent(text).format(n=n)) for n in (1, 2))
    assert one.digest != two.digest
    assert one.opaque == ()
