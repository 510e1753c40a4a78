# The tasks of this project; `make help` names them. Needs Python 3.11 or newer, a C compiler, and nothing installed.
#
# Two environments, made on demand: .venv has loopwatch as a user installs it (demo, bench), .venv-dev has it
# editable, built with the C asserts on and with the private test module (test, lint).

PYTHON ?= python3
ARGS ?=

VENV := .venv
DEV := .venv-dev
SOURCES := pyproject.toml setup.py $(shell find src loopwatch -name '*.[ch]' -o -name '*.py' -o -name '*.pyi')
C_TESTS := $(wildcard tests/core/*.[ch])
C_FILES := $(shell find src tests -name '*.[ch]')
PYTHON_DIRS := $(wildcard benchmarks examples loopwatch pytest_loopwatch.py setup.py tests)
TEXT := $(wildcard .ci CHANGELOG.md Makefile README.md docs) $(PYTHON_DIRS) src
# An older wheel before a newer source: packages of the tests' packages need a Rust compiler where they have no wheel.
PIP := bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary --only-binary pydantic-core,rpds-py

# It has no wheels for free-threaded builds, and the portable build cannot watch it.
UVLOOP := $(PIP) --only-binary :all: 'uvloop>=0.17'

.DELETE_ON_ERROR:
.PHONY: help demo test lint lint-python lint-types lint-c lint-words format bench clean

help: ## name the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "PYTHON=python3.13 chooses the interpreter of a new environment; ARGS is passed on to the benchmarks, and to pytest in place of -n 3 -q."

demo: $(VENV)/done ## install into .venv, block a real server's loop, show the report
	$(VENV)/bin/python examples/demo_app.py

test: $(DEV)/done ## build with the C asserts on and run the tests
	$(DEV)/bin/python -m pytest $(or $(ARGS),-n 3 -q)

lint: lint-python lint-types lint-c lint-words ## check style, types, format and spelling

lint-python: $(DEV)/lint ## ruff
	$(DEV)/bin/ruff check $(PYTHON_DIRS)
	$(DEV)/bin/ruff format --check $(PYTHON_DIRS)

lint-types: $(DEV)/done $(DEV)/lint ## mypy, and the stub of the native half against the module
	$(DEV)/bin/python -m mypy
	$(DEV)/bin/python -m mypy.stubtest --allowlist tests/stubtest.txt loopwatch._core

lint-c: $(DEV)/lint ## clang-format
	$(DEV)/bin/clang-format --dry-run -Werror $(C_FILES)

lint-words: $(DEV)/lint ## codespell
	$(DEV)/bin/codespell $(TEXT)

format: $(DEV)/lint ## format Python and C, mend what ruff can
	$(DEV)/bin/ruff check --fix $(PYTHON_DIRS)
	$(DEV)/bin/ruff format $(PYTHON_DIRS)
	$(DEV)/bin/clang-format -i $(C_FILES)

# What a user installs is measured, except where a benchmark is of a C subject alone and needs the test module.
bench: $(VENV)/done $(DEV)/done ## run the benchmarks, one after the other (ARGS=--short: a minute each at most)
	@$(VENV)/$(PIP) pytest pytest-asyncio # one of them runs another package's tests
	@for program in benchmarks/*.py benchmarks/experiments/*.py; do \
	    if grep -q _testcore $$program; then venv=$(DEV); else venv=$(VENV); fi; \
	    echo "== $$program"; $$venv/bin/python $$program $(ARGS) || exit; \
	done

clean: ## remove the environments and everything built
	rm -rf $(VENV) $(DEV) build dist ./*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -f loopwatch/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "loopwatch needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $*

# build/ is removed because the compiler's switches are not among what setuptools looks at to find a file up to date.
$(VENV)/done: $(VENV)/bin/python $(SOURCES)
	rm -rf build
	$(VENV)/$(PIP) --force-reinstall '.[demo,prometheus]'
	@touch $@

$(DEV)/done: $(DEV)/bin/python $(SOURCES) $(C_TESTS)
	rm -rf build loopwatch/*.so
	LOOPWATCH_TEST=1 $(DEV)/$(PIP) --editable '.[demo,test]'
	@$(DEV)/bin/python -m compileall -q $(filter-out setup.py benchmarks examples,$(PYTHON_DIRS)) # the programs that tests start write none
	@$(if $(LOOPWATCH_PORTABLE),true,$(DEV)/$(UVLOOP)) || echo "no uvloop for this interpreter: what needs it is skipped"
	@touch $@

$(DEV)/lint: $(DEV)/bin/python pyproject.toml
	$(DEV)/$(PIP) $$($(DEV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["lint"])')
	@touch $@
