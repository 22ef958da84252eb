# Two commands: `make demo` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
# CI machines and users alike: nothing asks questions, nothing phones home.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Several files of tests at once, each file in one process; a process takes up to 4 GB.
TOGETHER := --numprocesses auto --maxprocesses 4 --dist loadfile

# For the newest JAX, which needs a later Python than we do: the newest that is found, or the one named.
NEWEST_PYTHON ?= $(shell for version in 3.13 3.12; do \
  for python in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
    if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then echo "$$python"; exit; fi; done; done)

.PHONY: demo test test-all test-long test-newest test-compilers lint bench clean format

demo: .venv/demo
	$(BIN)/marin page gallery.first_model:page --site site --keep-failures

test: .venv/development
	$(BIN)/python -m pytest $(TOGETHER) -m "not long and not compilers and not interop"

# All of it, whatever fails; last what takes longest.
test-all:
	$(MAKE) --keep-going --jobs=1 test-long test-newest test-compilers

LONG := HYPOTHESIS_PROFILE=long JAX_PLATFORMS=cpu PYTHONPATH=$(CURDIR)/.venv/compilers $(BIN)/python -m pytest

test-long: .venv/development .venv/compilers .venv/interop
	$(LONG) $(TOGETHER) -m "not compilers"

# In one process: a compiler uses all cores, and with what it keeps up to 8 GB.
test-compilers: .venv/development .venv/compilers
	$(LONG) -m compilers

test-newest: .venv/development .venv/newest
	JAX_PLATFORMS=cpu PYTEST_ADDOPTS="$(TOGETHER)" $(BIN)/python tests/newest_jax.py .venv/newest/bin/python

lint: .venv/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/figures.py

format: .venv/development
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/development
	$(BIN)/python benchmarks/language.py
	$(BIN)/python benchmarks/evaluator.py
	$(BIN)/python benchmarks/main_job.py
	$(BIN)/python benchmarks/records.py

clean:
	rm -rf .venv .marin site dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache

# An environment that works stays: made anew over itself by another Python, it would be a mixture of both.
.venv/python: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed; $(PYTHON) is `$(PYTHON) --version 2>&1`. Try: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Setting up .venv (a minute or two, once) ..."
	@.venv/bin/python -c 'import ssl, sys; sys.exit(sys.argv[1] != "%d.%d" % sys.version_info[:2])' \
	  `$(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'` 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@touch $@

.venv/demo: .venv/python
	@$(PIP) --editable .
	@touch $@

.venv/development: .venv/python
	@$(PIP) --editable '.[test,lint]'
	@touch $@ .venv/demo

.venv/interop: .venv/development
	@$(PIP) --editable '.[interop]' && touch $@ \
	  || echo "No torch or transformers here: the tests that need them will be left out."

# Beside the environment, not in it: JAX, where it finds them and is not told otherwise, looks for TPUs and GPUs.
.venv/compilers: pyproject.toml constraints.txt
	@echo "Fetching the compilers for TPUs and GPUs (1 GB, once) ..."
	@$(PIP) --no-deps --upgrade --target $@ libtpu jax-cuda13-plugin jax-cuda13-pjrt \
	  && mkdir -p $@ && touch $@ || echo "No compilers for this machine: the tests that need them will be left out."

# JAX as new as it can be had, all else as pinned: what differs is JAX's doing, or Python's.
.venv/newest: pyproject.toml constraints.txt
	@python='$(NEWEST_PYTHON)'; if [ -n "$$python" ]; then \
	  echo "Setting up .venv/newest with $$python (a minute or two, once) ..."; rm -rf $@; \
	  "$$python" -m venv $@ && grep -Ev '^jax(lib|-.*)?==' constraints.txt > $@/constraints.txt \
	  && $@/bin/python -m pip install --quiet --disable-pip-version-check --constraint $@/constraints.txt --editable '.[test]' \
	  && touch $@ || { rm -rf $@; exit 1; }; fi
