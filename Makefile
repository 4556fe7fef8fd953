# Everything a person runs here. Needs Python >= 3.11 with venv, git and make; the rest comes from the locks.
#
#   make up      the demo on this machine: control plane, agent, gateway, an engine and a small model
#   make test    every test, with a real llama-server
#   make lint    format, lint, types, import contracts, generated files
#   make venv    the environment of tests and lint, nothing else
#   make lock    resolve the locks anew from pyproject.toml and requirements/*.in
#   make docs    rewrite what is generated from the code: schemas, tables in docs/
#   make clean   remove the environment, the demo's state and its weights

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP    := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input install
LOCKED := $(PIP) --require-hashes --no-deps

.PHONY: up test lint venv lock docs clean
.DELETE_ON_ERROR:

up: $(STAMPS)/llmgw $(STAMPS)/engine $(STAMPS)/demo
	@$(BIN)/python -m demo

test: $(STAMPS)/llmgw $(STAMPS)/engine
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMPS)/llmgw
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tests.support.generated --check

venv: $(STAMPS)/llmgw
	@:

docs: $(STAMPS)/llmgw
	@$(BIN)/python -m tests.support.generated

$(STAMPS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "cannot use $(PYTHON): it is Python %d.%d, 3.11 is needed (make PYTHON=python3.11 ...)" % sys.version_info[:2])'
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/dev: requirements/dev.lock $(STAMPS)/python
	@echo "installing the locked dependencies" >&2
	@$(LOCKED) -r requirements/dev.lock
	@touch $@

$(STAMPS)/llmgw: pyproject.toml $(STAMPS)/dev
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/engine: requirements/engine.lock $(STAMPS)/python
	@echo "installing the engine (llama-server, 68 MB)" >&2
	@$(LOCKED) -r requirements/engine.lock
	@touch $@

# A lock of its own, and without dependencies: they are for another program, and one of them builds from source.
$(STAMPS)/demo: requirements/demo.lock $(STAMPS)/python
	@echo "installing the demo's model (SmolLM2 135M, 93 MB)" >&2
	@$(LOCKED) -r requirements/demo.lock
	@touch $@

lock:
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && \
	$(PYTHON) -m venv "$$tools" && \
	"$$tools/bin/python" -m pip --quiet --quiet --disable-pip-version-check install uv && \
	compile() { "$$tools/bin/uv" pip compile --quiet --system-certs --universal --python-version 3.11 \
	    --generate-hashes --no-header --upgrade "$$@"; } && \
	compile pyproject.toml -o requirements/runtime.lock && \
	compile pyproject.toml --group dev -o requirements/dev.lock && \
	compile --no-deps requirements/engine.in -o requirements/engine.lock && \
	compile --no-deps requirements/demo.in -o requirements/demo.lock

clean:
	@rm -rf $(VENV) .demo .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
