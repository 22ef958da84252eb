"""The main job's waiting times: what `marin` costs when nothing has to run, beside importing jax alone.

Evaluates `gallery.first_model` first if `.marin/` does not have it (minutes).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPEATS = 5
PAGE = ["-m", "marin_dsl", "page", "gallery.first_model:page", "--site", "site", "--keep-failures"]
SIDES = {
    "marin page, nothing to run": PAGE,
    "marin plan": ["-m", "marin_dsl", "plan", "gallery.first_model:page", "--keep-failures"],
    "import marin_dsl": ["-c", "import marin_dsl"],
    "import jax": ["-c", "import jax"],
}


def seconds(arguments: list[str]) -> float:
    # Where compiled modules are not kept, as in containers, each process would compile all of them again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    return time.perf_counter() - began


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    os.chdir(root)
    seconds(PAGE)
    rounds = [{name: seconds(arguments) for name, arguments in SIDES.items()} for _ in range(REPEATS)]
    medians = {name: statistics.median(each[name] for each in rounds) for name in SIDES}
    print(f"{'whole process, median of ' + str(REPEATS):<34}{'seconds':>9}{'beside import jax':>20}")
    for name, median in medians.items():
        print(f"{name:<34}{median:>9.2f}{median / medians['import jax']:>19.2f}×")


if __name__ == "__main__":
    main()
