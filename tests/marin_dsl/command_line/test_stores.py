"""`marin verify` and `marin store copy`."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.marin_dsl.command_line.project import document, marin, told


def test_a_sound_store_is_verified(evaluated):
    (line,) = told("verify")
    assert re.fullmatch(r"sound  [\d,]+ blobs \(.*iB\), \d+ records, 0 blobs unused", line)
    assert document("verify")["sound"]


def test_damage_is_shown_with_what_to_do_and_exit_1(evaluated):
    blob = next(Path(".marin/blobs").glob("*/*"))
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    shown = told("verify", code=1)
    assert f"damaged {blob.relative_to('.marin')}" in shown
    assert "evaluate again or remove it" in shown[shown.index(f"damaged {blob.relative_to('.marin')}") + 1]
    assert re.match(r"\d+ findings  ", shown[-1])
    assert not document("verify", code=1)["sound"]


def test_garbage_is_told_first_and_removed_when_it_is_said_so(evaluated):
    assert told("gc")[0].startswith("would move to the trash: 0 files")
    marin("run", "experiment:fail_alone", "--debug")
    time.sleep(0.02)  # clocks of file systems are coarse: what is written now is as old as a collection that begins now
    shown = told("gc", "--grace", "0")
    assert shown[0].startswith("would move to the trash: ")
    assert shown[-1] == "nothing was changed; marin gc --apply does it"
    assert len(document("gc", "--grace", "0")["swept"]) > 0
    assert told("gc", "--grace", "0", "--apply")[0].startswith("moved to the trash: ")
    assert document("gc", "--grace", "0")["swept"] == []
    assert told("show", "a-page@1.0")[0] == "✓ write(title='A page')  ok"
    assert re.match(
        r"removed from the trash: [1-9]",
        next(line for line in told("gc", "--grace", "0", "--apply") if "from the trash" in line),
    )
    assert marin("show", "experiment:fail_alone").exit_code == 2


def test_a_label_is_copied_with_what_it_stands_for_and_only_once(evaluated):
    shown = told("store", "copy", ".marin", "elsewhere", "a-page@1.0")
    assert shown[0].startswith("a-page@1.0 to ")
    assert re.fullmatch(r"\d+ records and \d+ blobs \(.*\) moved", shown[1])
    assert told("show", "a-page@1.0", "--store", "elsewhere")[0] == "✓ write(title='A page')  ok"
    assert told("store", "copy", ".marin", "elsewhere")[1] == "0 records and 0 blobs (0 B) moved"


def test_what_is_missing_in_the_source_is_told_and_exit_1(evaluated):
    next(Path(".marin/blobs").glob("*/*")).unlink()
    shown = told("store", "copy", ".marin", "elsewhere", code=1)
    assert shown[2].startswith("missing ")


def test_a_label_that_is_not_there_or_has_parted_is_one_message(evaluated):
    done = marin("store", "copy", ".marin", "elsewhere", "b@1")
    assert done.exit_code == 2
    assert "has no label b@1; it has a-page@1.0" in done.stderr
    assert not Path("elsewhere").exists()
    assert told("store", "copy", "nowhere", "elsewhere") == [
        f"store {Path('nowhere').absolute()} has no labels; nothing was copied"
    ]
    assert not Path("elsewhere").exists()
    marin("run", "experiment:page", "--debug", "--store", "elsewhere")
    marin("run", "experiment:page", "--debug", "--store", "elsewhere")
    done = marin("store", "copy", ".marin", "elsewhere")
    assert done.exit_code == 2
    assert "a-page@1.0 has another history in" in done.stderr
