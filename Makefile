PYTHON ?= python3

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt
BASE := .venv/.base
FULL := .venv/.full
PINS := setup.cfg pyproject.toml constraints.txt
TYPED = $(wildcard nqm theory plots deep benchmarks driftproof.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help reproduce test test-all lint bench clean

help:  ## list the targets
	@awk -F ':.*## *' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

reproduce: $(BASE)  ## every figure and table that needs no GPU, into out/
	$(BIN)/driftproof reproduce --out out

test: $(FULL)  ## the tests, without the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(FULL)  ## all tests, the long statistical checks included
	$(BIN)/python -m pytest -n 2

lint: $(FULL)  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)

bench: $(BASE)  ## timings
	$(BIN)/driftproof bench

clean:  ## remove the environment, caches and build files; out/ stays
	rm -rf .venv build dist *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: driftproof needs Python 3.11 or newer; '$(PYTHON)' says: $$($(PYTHON) -V 2>&1 || true)." \
	    "Choose another with: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Creating .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

# The build uses the pinned setuptools of .venv, not whatever is newest.
$(BASE): $(PINS) | .venv/.created
	@echo "Installing driftproof into .venv"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e .
	@touch $@

$(FULL): $(PINS) | .venv/.created
	@echo "Installing driftproof with its test tools, torch and Dask into .venv (a minute or two the first time)"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e '.[test,deep,cluster,data,pep]'
	@touch $(BASE) $@
