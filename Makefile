# The commands of the project. Plain `make` explains them.
#
# Everything runs in .venv, which is built from setup.cfg when it is missing or older. Java 17 or newer is needed
# wherever Spark is; as root on Debian it is installed, elsewhere you are told what to install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON := $(VENV)/bin/python
# What `make` installs is decided here: the demo needs Spark and its data, the tests also their tools.
DEMO_EXTRAS := spark,demo
TEST_EXTRAS := $(DEMO_EXTRAS),test
BENCH_EXTRAS := $(TEST_EXTRAS),bench
# What a job file imports; tests, benchmarks and examples are never installed.
PACKAGES := engine operators state_backends spark_bridge
# One Spark session serves a test run: loadgroup keeps the Spark tests in one worker, and the tests of a file together
# (see tests/conftest.py).
TEST_WORKERS := 2
# Extra arguments for pytest: make test ARGS="-k barrier -x"; or for the benchmarks: make bench ARGS="w1 --quick"
ARGS :=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1
export PYTHONUNBUFFERED := 1
# The tests start hundreds of processes: each would compile the engine for itself.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all validate lint bench docs env java

help: ## Explain the commands (this text)
	@echo 'Weir: a stream-processing engine you can stop, crash, rewind and audit.'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{ printf "%-18s%s\n", $$1, $$2 }'
	@echo
	@echo 'make test ARGS="-k barrier -x" hands arguments on to pytest. Start with: make demo'

demo: $(VENV)/.ready-demo java ## Run the demonstration: a job on 336,776 flights, crashed, recovered and audited
	@$(PYTHON) -m examples.flights --mode aligned --mode at-least-once

test: $(VENV)/.ready-test java ## Run the tests, without those marked slow
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} \
	  $(PYTHON) -m pytest -n $(TEST_WORKERS) --dist loadgroup -m 'not slow' $(ARGS) 2>&1

test-all: $(VENV)/.ready-test java ## Run all tests, the slow ones too
	@$(PYTHON) -m pytest -n $(TEST_WORKERS) --dist loadgroup $(ARGS) 2>&1

validate: $(VENV)/.ready-test ## Reproduce published figures and closed forms (minutes); writes docs/validation.md
	@$(PYTHON) -m tests.validation.page $(ARGS)

lint: $(VENV)/.ready-test ## Check style (ruff), types (mypy) and layers (import-linter)
	@status=0; \
	$(PYTHON) -m ruff check . || status=1; \
	$(PYTHON) -m mypy || status=1; \
	PYTHONPATH=. $(VENV)/bin/lint-imports --no-logo || status=1; \
	exit $$status

bench: $(VENV)/.ready-bench ## Run the benchmarks (minutes; numbers are explained in benchmarks/README.md)
	@$(PYTHON) -m benchmarks $(ARGS)

docs: $(VENV)/.ready-test ## Write what is generated, and check all pages: links lead somewhere, commands in them exist
	@$(PYTHON) -m tests.house.documents.configuration
	@$(PYTHON) -m tests.runtime.config.typed_settings
	@$(PYTHON) -m pytest -q tests/house/documents/test_docs.py $(ARGS) 2>&1

env: $(VENV)/.ready-test java ## Only prepare what the other commands need: .venv and Java

# --- what the commands need --------------------------------------------------------------------------------------

# A candidate is tried, not only looked for: version managers leave launchers that find no interpreter.
$(VENV)/bin/python:
	@for candidate in python3.11 python3 python3.12 python3.13; do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Building $(VENV) with $$("$$candidate" --version) ..."; \
	    "$$candidate" -m venv $(VENV) && exit 0 || exit 2; \
	  fi; \
	done; \
	echo 'No Python 3.11 or newer with the venv module was found (tried python3.11, python3, python3.12, python3.13).' >&2; \
	echo 'Install it (Debian, Ubuntu: apt-get install python3 python3-venv), then run make again.' >&2; \
	exit 2

# Stamps: .venv follows setup.cfg. The test environment is built on the demo's, so they never install side by side.
$(VENV)/.ready-demo: setup.cfg pyproject.toml $(VENV)/.ready-packages | $(VENV)/bin/python
	@echo 'Installing weirstream[$(DEMO_EXTRAS)] into $(VENV) ...'
	@$(PYTHON) -m pip install -qq --editable '.[$(DEMO_EXTRAS)]'
	@touch $@

# pip makes a checkout importable through a hook in the interpreter, which type checkers and editors do not run. They
# follow this static path, to a directory that holds links to the packages and nothing else of the checkout.
$(VENV)/.ready-packages: | $(VENV)/bin/python
	@mkdir -p $(VENV)/packages
	@ln -sfn $(addprefix $(CURDIR)/,$(PACKAGES)) $(VENV)/packages/
	@$(PYTHON) -c 'import sys, sysconfig; print(sys.argv[1], file=open(sysconfig.get_path("purelib") + "/weirstream.pth", "w"))' \
	  '$(abspath $(VENV))/packages'
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready-demo
	@echo 'Installing weirstream[$(TEST_EXTRAS)] into $(VENV) ...'
	@$(PYTHON) -m pip install -qq --editable '.[$(TEST_EXTRAS)]'
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-test
	@echo 'Installing weirstream[$(BENCH_EXTRAS)] into $(VENV) ...'
	@$(PYTHON) -m pip install -qq --editable '.[$(BENCH_EXTRAS)]'
	@touch $@

# JAVA_HOME wins over PATH because Spark sees it the same way.
java:
	@major() { "$$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1 || true; }; \
	if [ -n "$${JAVA_HOME:-}" ]; then \
	  found=$$(major "$$JAVA_HOME/bin/java"); \
	  if [ "$${found:-0}" -ge 17 ]; then exit 0; fi; \
	  echo "JAVA_HOME is $$JAVA_HOME, which holds $${found:+Java }$${found:-no Java}; Spark needs Java 17 or newer." >&2; \
	  echo 'Point JAVA_HOME at Java 17 or newer, or unset it.' >&2; \
	  exit 2; \
	fi; \
	found=$$(major java); \
	if [ "$${found:-0}" -ge 17 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing Java 17 (openjdk-17-jre-headless) ...'; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; } >/dev/null || true; \
	  found=$$(major java); \
	  if [ "$${found:-0}" -ge 17 ]; then exit 0; fi; \
	fi; \
	echo "Spark needs Java 17 or newer; found $${found:+Java }$${found:-none}." >&2; \
	echo 'Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17),' >&2; \
	echo 'then run make again.' >&2; \
	exit 2
