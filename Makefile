# Two commands do everything from nothing on a machine with Python 3.11+: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

# The parts of the product start as processes again and again: let them keep their compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo up test lint locks openapi
.DEFAULT_GOAL := demo

# The environment, from the hashed lock file alone; made again when the lock file changes.
$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Nodus needs Python 3.11 or newer; set PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@echo 'Setting up $(VENV) from the lock file; this takes about a minute.'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $(READY)

setup: $(READY)

# D=DIR chooses the data directory; its parents must be folders that others may traverse.
demo: $(READY)
	@$(BIN)/nodus demo $(if $(D),--data-dir $(D))

up: $(READY)
	@$(BIN)/nodus up $(if $(D),--data-dir $(D))

# First the client programs and those of other versions, as far as they can be had. The kernel and the wire format must be covered to the last branch by
# their own tests; the rest is dealt to workers as tests/conftest.py says, unwatched, since watching would cost it half its time.
test: $(READY)
	@$(BIN)/python -m tests.programs
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered tests/kernel tests/metav1
	$(BIN)/python -m pytest -n auto --ignore=tests/kernel --ignore=tests/metav1 $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

openapi: $(READY)
	$(BIN)/nodus openapi

# Needs uv; hashes only, no address of any registry.
locks:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml -o requirements-dev.lock
	cd tests/clients/python && uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.lock
