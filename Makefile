# A newcomer needs `make demo`, and to change something `make quick` before each commit and
# `make test` before a merge. Each makes .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP_INSTALL := $(PIP) --constraint constraints.txt

# Tests start hundreds of processes: without bytecode each compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test thorough fuzz lint bench docs claims clean

demo: .venv/.demo-installed
	$(BIN)/fedmuster demo

QUICK := tests/core tests/bandits tests/solvers tests/policies \
	tests/contract/test_golden.py tests/contract/test_registry_keeps_contract.py \
	tests/worlds/test_world_configs.py tests/worlds/test_world_rounds.py \
	tests/federation/test_simulation.py

quick: .venv/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal \
		-m "not slow and not browser and not ray and not flower and not nvflare" $(QUICK)

test: lint
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

thorough: .venv/.test-installed  # looks longer for counterexamples
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --hypothesis-profile thorough

FUZZ_SEEDS ?= 10000
fuzz: .venv/.test-installed  # hours; stopped, it goes on where it was
	$(BIN)/python -m tests.fuzz --seeds $(FUZZ_SEEDS)
	$(BIN)/python -m tests.powercuts --seeds 2000

lint: .venv/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/make_policy_pages.py --check

bench: .venv/.test-installed
	$(BIN)/python -m benchmarks

docs: .venv/.test-installed
	$(BIN)/python docs/make_policy_pages.py

claims: .venv/.test-installed
	$(BIN)/fedmuster claims all --pages docs/claims

clean:
	rm -rf .venv runs

.venv/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "fedmuster needs Python 3.11 or newer: make PYTHON=python3.11"'
	$(PYTHON) -m venv .venv

.venv/.demo-installed: .venv/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[report]'
	touch $@

.venv/.test-installed: .venv/bin/python pyproject.toml constraints.txt requirements.lock
	$(PIP_INSTALL) torch==2.13.0  # by itself and first: a plain "torch" may bring gigabytes of CUDA
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@
