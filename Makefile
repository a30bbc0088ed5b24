PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST_ARGS ?=
# On all cores, and without the packages' own tests: pip compiles everything on one. Some files are templates.
COMPILE = -@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib api ops pipeline workers migrations

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-setup lint bench faults mutations test-llm clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	@# Twice as fast as the one that comes with Python 3.11; without it all works, slower.
	-@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed-local: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -e ".[local]"
	$(COMPILE)
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -e ".[local,test,gpu]"
	$(COMPILE)
	@touch $@ $(VENV)/.installed-local

setup: $(VENV)/.installed-local ## Create the virtual environment with what running needs

test-setup: $(VENV)/.installed-test

run: setup ## Start everything on this machine with the demo documents; Ctrl-C stops it
	@exec $(BIN)/wellhead up --demo

demo: setup ## Start in a throw-away directory, look three things up, stop
	@exec $(BIN)/python -m ops.demo_run

test: test-setup ## Run the whole suite against real services (PYTEST_ARGS=… for a part of it)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: test-setup ## Check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: test-setup ## Measure over whole corpora (minutes)
	$(BIN)/python -m ops.bench.ingest
	$(BIN)/python -m ops.bench.claim
	$(BIN)/python -m ops.bench.live_under_backfill
	$(BIN)/python -m ops.bench.reindex
	$(BIN)/python -m ops.bench.lookup
	$(BIN)/python -m ops.bench.quality --models .test-services/models

faults: test-setup ## Kill, freeze and flush every part under load, ROUNDS=10 times, and print what became of it
	@$(BIN)/python -m ops.bench.faults $(PYTEST_ARGS)

mutations: test-setup ## Break one promise at a time and see that its test fails
	@$(BIN)/python -m pytest tests/mutations -m mutations $(PYTEST_ARGS)

test-llm: test-setup ## The tests that talk to a real LLM server, which comes from PyPI
	@$(BIN)/python -m pip install --quiet --no-compile -e ".[llm]"
	@$(BIN)/python -m pytest -m llm $(PYTEST_ARGS)

clean: ## Remove caches and the virtual environment; never data
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
