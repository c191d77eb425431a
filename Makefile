# Every target sets up what it needs in .venv; only Python >= 3.11 and make are taken for granted.
# PYTHON=python3.12 make test    picks another interpreter for a new .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SETUP := pyproject.toml constraints.txt hatch_build.py $(addprefix src/cvxnn/kernels/,kernels.h native.c products.c)
PEERS := pyscnn adelie skglm celer

.DEFAULT_GOAL := help
.PHONY: help demo test lint sanitize fuzz bench docs clean

help:
	@echo "make demo       set up and train a certified network on data that ships with scikit-learn"
	@echo "make test       set up and run all tests"
	@echo "make lint       ruff and mypy"
	@echo "make sanitize   random calls of the compiled kernels under sanitizers"
	@echo "make fuzz       random problems, every answer judged exactly; goes on where it stopped"
	@echo "make bench      benchmarks against peers (each in an environment of its own)"
	@echo "make docs       build the documentation into docs/_build/html"
	@echo "make clean      remove what the other targets made"

demo: $(VENV)/.plot
	$(BIN)/cvxnn demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize:
	tests/sanitize/run

fuzz: $(VENV)/.test
	$(BIN)/python -m fuzz

bench: $(VENV)/.test $(PEERS:%=$(VENV)-%/.ready)
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) $(VENV)-* docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.png

# One stamp for each extra, so that a target installs no more than it uses.
$(VENV)/.plot $(VENV)/.test $(VENV)/.lint $(VENV)/.docs: $(VENV)/.%: $(SETUP) | $(BIN)/python
	$(PIP) --editable ".[$*]"
	@touch $@

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'cvxnn needs Python >= 3.11')"
	$(PYTHON) -m venv $(VENV)

# The packages that cvxnn is compared with, each in an environment of its own.
$(PEERS:%=$(VENV)-%/.ready): $(VENV)-%/.ready: benchmarks/peers/%-constraints.txt
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< $*
	@touch $@
