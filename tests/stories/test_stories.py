"""Failures that people met elsewhere, as they would write them here: each script shows the right behaviour."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STORIES = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_story_ends_well(story, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "MARIN_STORE": str(tmp_path / "unused")}
    done = subprocess.run(
        [sys.executable, story], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("story told\n")


def test_there_are_six_stories():
    assert len(STORIES) == 6
