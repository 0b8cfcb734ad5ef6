# Two commands on a fresh machine (python3 3.11 to 3.13 with venv, g++, make):
#   make run     evolve a kernel on what this machine has, within about two minutes
#   make test    everything that CI checks
#   make bench   the figures of the scale guide: minutes, on a quiet machine
# `make run ARGS="task=softmax termination.wall_time=10m"` passes configuration on;
# `make PYTHON=python3.12 run` uses another interpreter for a fresh .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=

.PHONY: help run test lint bench clean
help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -6

run: $(VENV)/.installed
	$(BIN)/evolve run task=rmsnorm search=quick $(ARGS)

test: lint
	$(BIN)/python -m pytest -m "not slow and not gpu"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	@for script in tests/benchmarks/bench_*.py; do \
	  echo "== $$script $(ARGS)"; \
	  $(BIN)/python -m tests.benchmarks.$$(basename $$script .py) $(ARGS) || exit 1; \
	done

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Stamps: the install is repeated only when what is asked for has changed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (a few minutes the first time: torch and triton are large)"
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) what tests need"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; \
	  exit 1; }
