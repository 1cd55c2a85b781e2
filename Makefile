# Every target does all of its own set-up: a bare clone, make and python3 (3.11 or newer) are enough.
# As root and as an ordinary user. uv is used where it exists.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# The first Python on PATH that is new enough; `make PYTHON=python3.13 test` chooses another.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	if command -v $$each >/dev/null 2>&1 && $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$each; break; fi; done)
BIN := .venv/bin
# More workers than cores: half of a test's time is spent waiting for PostgreSQL.
WORKERS ?= 3
# worksteal: each worker begins elsewhere, so tests that wait run beside tests that compute.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --quiet
# Every worker, and every command that a test starts, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# pytest warns that python -O drops assertions outside of tests: that is what these runs are for.
OPTIMIZED := -W ignore::pytest.PytestConfigWarning

## make demo         see Octop work on a PostgreSQL of its own; ARGS='--seconds 15 --json' passes options on
.PHONY: demo
demo: set-up-demo
	@$(BIN)/octop demo $(ARGS)

## make test         check all but what takes long, the SQL on PostgreSQL 18 and 14; ARGS='-k exchange' chooses tests
.PHONY: test
test: lint
	@echo '== a part of the suite without assertions (python -O) =='
	PYTHONOPTIMIZE=1 OCTOP_TEST_POSTGRES=18 $(PYTEST) $(OPTIMIZED) -m 'smoke and not slow' tests/unit
	@echo '== the suite =='
	$(PYTEST) -m 'not long' $(ARGS)

## make test-ci      the same with the long tests: faults, walks, millions of rows
.PHONY: test-ci
test-ci:
	@$(MAKE) test ARGS="-m '' $(ARGS)"

## make test-quick   the suite on the newest PostgreSQL alone, without the slow tests
.PHONY: test-quick
test-quick: set-up-test
	OCTOP_TEST_POSTGRES=18 $(PYTEST) -m 'not slow' $(ARGS)

## make test-all     check everything on PostgreSQL 14 to 18, and the whole suite under python -O
.PHONY: test-all
test-all: lint
	@echo '== the suite without assertions (python -O) =='
	PYTHONOPTIMIZE=1 OCTOP_TEST_POSTGRES=18 $(PYTEST) $(OPTIMIZED)
	@echo '== the suite on every version =='
	OCTOP_TEST_POSTGRES=18,17,16,15,14 $(PYTEST) $(ARGS)

## make lint         rules, format, types and floors
.PHONY: lint
lint: set-up-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## make format       let ruff repair what it can
.PHONY: format
format: set-up-test
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

## make docs         build the site, build/site/index.html; a broken link is an error
.PHONY: docs
docs: set-up-test
	$(BIN)/python -m tools.build_site

## make pages        write again what is generated: pages of docs/reference, the pictures of states and schema
.PHONY: pages
pages: set-up-test
	@for each in tools/schema_picture.py tools/*_page.py tools/state_picture.py; do $(BIN)/python "$$each" || exit 1; done

## make bench        measure Octop and its peers, a short form; ARGS='--only octop,pgqueuer' passes options on
.PHONY: bench
bench: set-up-demo
	$(BIN)/python -m benchmarks $(ARGS)

## make bench-full   all of it, an hour and more, written to benchmarks/results/
.PHONY: bench-full
bench-full: set-up-demo
	$(BIN)/python -m benchmarks --full $(ARGS)

## make faults       hurt real workers, PostgreSQL and network, and check that nothing is lost; SECONDS=60 SEED=1 ARGS='--variant pooled'
.PHONY: faults
faults: set-up-test
	$(BIN)/python -m tests.system.faults --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

## make faults-long  the same for an hour: twelve seeds of five minutes, in each variant in turn, written to RESULT=tests/system/faults/results/….md
.PHONY: faults-long
RESULT ?= tests/system/faults/results/$(shell date -u +%Y-%m-%d).md
faults-long: set-up-test
	@mkdir -p $(dir $(RESULT))
	$(BIN)/python -m tests.system.faults --seconds $(or $(SECONDS),300) --seed $(or $(SEED),1) --seeds 12 --variant all --result $(RESULT) $(ARGS)

## make faults-mutants  take the engine's guards out, one after the other, and see that the harness misses each
.PHONY: faults-mutants
faults-mutants: set-up-test
	$(BIN)/python -m tests.system.faults --seconds $(or $(SECONDS),30) --seed $(or $(SEED),1) --mutants $(ARGS)

## make faults-peers  Octop, procrastinate, pgqueuer, oban and Celery under the same faults, 15 minutes; SECONDS=60 SEED=1 ARGS='--only octop,oban'
.PHONY: faults-peers
faults-peers: set-up-test
	$(BIN)/python -m tests.system.faults.peers --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

## make long-run     a million tasks of all kinds through one worker, and what it holds after each 50,000; TASKS=200000
.PHONY: long-run
long-run: set-up-test
	OCTOP_TEST_LONG_RUN=$(or $(TASKS),1000000) OCTOP_TEST_POSTGRES=18 $(BIN)/python -m pytest --quiet --capture=no tests/system/test_worker_long_run.py

## make cron-long    every question of the cron tests, two million: about half an hour; OCTOP_TEST_POSTGRES=18,14
.PHONY: cron-long
cron-long: set-up-test
	OCTOP_TEST_CRON=all $(PYTEST) tests/sql/test_cron.py tests/sql/test_cron_oracle.py

## make clean        remove all that these targets made
.PHONY: clean
clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

## make help         this list
.PHONY: help
help:
	@sed -n 's/^## //p' Makefile

.PHONY: set-up-demo set-up-test
set-up-demo set-up-test: set-up-%:
	@if [ -z '$(PYTHON)' ]; then \
		echo 'Octop needs Python 3.11 or newer, and none is on the PATH. Install one, or name it: make PYTHON=/path/to/python3 test' >&2; \
		exit 1; fi
	@$(PYTHON) tools/set_up.py $*
