# Two commands on a fresh machine (python3 3.11 to 3.13 with venv, g++, make):
#   make run     evolve a kernel on what this machine has, in 80 s with its verification
#   make test    everything that CI checks; `make test ONLY=store` runs one folder of tests
#   make test-all    before a release: also tests marked `slow` (further parameters, whole searches,
#                    PyTorch's compiler, emulated GPUs, browsers, long waits), and those of Ray
#   make test-trainers   exports and rewards through the trainers themselves, in a .venv-trainers
#   make bench   figures of scale and cost, up to 10^4 programs: minutes, on a quiet machine
# `make run ARGS="task=softmax termination.wall_time=10m"` passes configuration on;
# `make PYTHON=python3.12 run` uses another interpreter for a fresh .venv;
# `make bench ONLY=engine ARGS="--sizes 1000,1000000"` goes as far as one script is told.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRAINERS := .venv-trainers
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# On all cores, as pip does not; a package may hold files for other versions of Python.
COMPILE = $(BIN)/python -m compileall -q -j 0 $(VENV)/lib evolve operators archives > /dev/null || true
ARGS ?=

# Each process would compile all of the tests and of the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-all test-trainers lint style types units bench clean
help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -10

run: $(VENV)/.installed
	$(BIN)/evolve run task=rmsnorm search=quick $(ARGS)

# Three processes for two cores, because many tests wait. A file stays in one, with its fixtures.
# mypy uses one core for long, and so has the tests beside it.
# Tests marked `quiet` time kernels: they come last, one by one, with the machine to themselves. One
# that fails is tried once more, for a host may be shared; the log says so. No cheat has a second try.
# Only files that have such tests are read for them, for to read all takes half a minute; there may
# be none to run (status 5) where all are slow.
TESTS := tests/$(ONLY)
QUIET := $(filter $(TESTS:%/=%)/%,$(shell grep -rlE 'mark\.quiet|import.*\bmarked\b' tests --include='test_*.py'))
test: FAST := not slow and
test-all: $(VENV)/.installed-all
test test-all: $(if $(ONLY),$(VENV)/.installed-dev,style)
	@$(MAKE) --no-print-directory -j2 $(if $(ONLY),,types) units FAST="$(FAST)"
	$(if $(QUIET),$(BIN)/python -m pytest $(QUIET) -m "$(FAST) not gpu and quiet" --reruns 1 -rR || test $$? = 5)

test-trainers: $(TRAINERS)/.installed
	HF_HUB_OFFLINE=1 $(TRAINERS)/bin/python -m pytest tests/trainers tests/rl \
	  tests/serve/test_schema.py

units:
	$(BIN)/python -m pytest $(TESTS) -m "$(FAST) not gpu and not quiet" -n 3 --dist loadfile

lint: style types

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(if $(ARGS),$(if $(ONLY),,$(error ARGS are for one script: add ONLY=engine or another)))
	@for script in tests/benchmarks/bench_$(or $(ONLY),*).py; do \
	  echo "== $$script $(ARGS)"; \
	  $(BIN)/python -m tests.benchmarks.$$(basename $$script .py) $(ARGS) || exit 1; \
	done

clean:
	rm -rf $(VENV) $(TRAINERS) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Stamps: the install is repeated only when what is asked for has changed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (a few minutes the first time: torch and triton are large)"
	$(PIP) -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) what tests need"
	$(PIP) -e '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.installed

# What `make test` skips the tests of: Ray is large.
$(VENV)/.installed-all: $(VENV)/.installed-dev
	@echo "installing Ray into $(VENV)"
	$(PIP) -e '.[dev,ray]'
	@$(COMPILE)
	@touch $@

# The trainers in releases that the tests were written against. Those that come without what they
# need to train are read with only.
$(TRAINERS)/.installed: pyproject.toml constraints.txt
	@echo "installing into $(TRAINERS) what trainers read with (a few minutes)"
	@$(PYTHON) -m venv $(TRAINERS)
	$(TRAINERS)/bin/python -m pip install --quiet $$(grep ^torch== constraints.txt)
	$(TRAINERS)/bin/python -m pip install --quiet -e '.[data,serve,rl]' \
	  pytest pytest-timeout hypothesis \
	  trl==1.16.0 datasets==5.2.0 'transformers>=5.5.3,<5.11' pandas pillow \
	  ray 'tensordict<=0.10' codetiming cachetools aiohttp jmespath \
	  peft pylatexenc addict colorama schemathesis
	$(TRAINERS)/bin/python -m pip install --quiet --no-deps \
	  verl==0.9.1 llamafactory==0.9.5 axolotl==0.19.0 \
	  'openrlhf==0.11.2; python_version < "3.13"'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; \
	  exit 1; }
