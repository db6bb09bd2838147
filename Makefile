# make test   a virtual environment with the test extras, then every check and every test
# make check  the same checks and tests with the environment that is there (BIN=folder of its programs,
#             JOBS=processes of the tests: as many as there are cores, at most eight, or 0 for none beside this one)
# make bench  how long an estimate and the program's start take
# make docs   docs/sources.md from the tables; docs/accuracy.md too with RECORDS=folder of run records
# make clean  remove what these made

PYTHON ?= python3
VENV ?= .venv
BIN ?= $(VENV)/bin
RECORDS ?=
JOBS ?= auto
export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))

# Static checks first, then one run of pytest over these folders in this order, then any that are not named here. Each
# process takes the next file, so that what a file's tests share is made once.
ORDER := house base facts plan model lines allocator ledger evidence answer show importers api web witness \
         properties published records cli
FOLDERS := $(patsubst tests/%/,%,$(wildcard tests/*/))
FOLDERS := $(filter-out __pycache__,$(FOLDERS))
TESTS := $(addprefix tests/,$(filter $(FOLDERS),$(ORDER)) $(filter-out $(ORDER),$(FOLDERS))) $(wildcard tests/test_*.py)

.PHONY: test check static bench docs clean

test: $(VENV)/.installed
	$(MAKE) --no-print-directory check BIN=$(VENV)/bin

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check '.[test]'
	touch $@

check: static
	$(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 --dist loadfile --benchmark-disable $(TESTS)

static:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench:
	$(BIN)/python -m pytest -q -o python_files='bench_*.py' -o python_functions='bench_*' --benchmark-only bench

docs:
	$(BIN)/python -c 'from trainledger.show.sources import sources_markdown as page; print(page(), end="")' > docs/sources.md.new
	mv docs/sources.md.new docs/sources.md
ifneq ($(RECORDS),)
	$(BIN)/python -m trainledger accuracy $(wildcard $(RECORDS)/*.jsonl) --markdown --worst 20 > docs/accuracy.md.new
	mv docs/accuracy.md.new docs/accuracy.md
endif

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
