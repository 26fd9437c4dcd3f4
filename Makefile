# unskew: every target works alone on a fresh clone with git, make and Python 3.11 or newer.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test drill lint bench services services-stop clean

# The Python that makes .venv; `make setup PYTHON=/path/to/python` chooses another.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Tests that share a Spark session; the others run beside them, as there are two cores.
WITH_SPARK := README.md tests/apps tests/spark
# How often `make drill` kills a pipeline at random moments.
ROUNDS ?= 5
# Other artifacts for Spark to read Kafka with than those of its own version, as
# group:name:version,...; all of them are named, as what they need is not fetched then.
CONNECTOR ?=
CODE := $(wildcard src tests benchmarks docs tools conftest.py)

help: ## Show this help
	@echo "unskew keeps skewed streams balanced on Spark. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv with all that the other targets need (quick when up to date)
	@echo "make: .venv is ready"

demo: $(READY) ## Run a job on Spark whose hot keys change, balanced and checked
	@$(BIN)/unskew run --verify

test: $(READY) ## Run the tests and the examples in the docstrings
	@mkdir -p build; echo "make: tests without Spark run beside those with it, and are told of at the end"
	@$(BIN)/pytest -q src tests $(addprefix --ignore=,$(filter tests/%,$(WITH_SPARK))) \
	  > build/tests-without-spark.log 2>&1 & beside=$$!; \
	trap 'kill $$beside 2>/dev/null || true' EXIT; failed=; \
	$(BIN)/pytest -q $(WITH_SPARK) || failed=yes; \
	wait $$beside || failed=yes; \
	cat build/tests-without-spark.log; [ -z "$$failed" ]

drill: $(READY) ## Kill jobs and executors, and see that no row is lost (minutes; ROUNDS=100 for more)
	@ROUNDS=$(ROUNDS) $(BIN)/pytest -q -m drill

lint: $(READY) ## Check style, types and the layers
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BIN)/lint-imports

bench: $(READY) ## Run every benchmark and print its table
	@shopt -s nullglob; for script in benchmarks/bench_*.py; do \
	  echo "== $$script"; $(BIN)/python "$$script"; \
	done

services: $(READY) ## Fetch and start a Redis and a Kafka on this machine, for tests and unskew run words
	@$(BIN)/python tools/services.py start $(if $(CONNECTOR),--connector $(CONNECTOR))

services-stop: ## Stop them, and remove their data
	@if [ -x $(BIN)/python ]; then $(BIN)/python tools/services.py stop; fi

clean: services-stop ## Remove .venv, caches and builds
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "make: there is no $(PYTHON); install Python 3.11 or newer, or name one:" \
	    "make setup PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: unskew needs Python 3.11 or newer, $(PYTHON) is $$("$(PYTHON)" --version 2>&1);" \
	    "install one and name it: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  package="python$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "make: installing $$package, which this Python needs to make a .venv"; \
	    apt-get update -qq && apt-get install -y -qq "$$package" >/dev/null; \
	  else \
	    echo "make: this Python cannot make a .venv; install its venv module" \
	      "(Debian, Ubuntu: sudo apt-get install $$package)" >&2; exit 1; \
	  fi; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv
	@echo "make: installing into .venv (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
