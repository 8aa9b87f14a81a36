# Two commands on a fresh machine that has Python, git and make:
#   make check   decide every design under designs/ and print the verdict table
#   make test    lint, types, doctests and tests
# PYTHON chooses the interpreter that .venv is made from; JOBS the number of test workers.
PYTHON ?= python3
JOBS ?= 2
VENV ?= .venv
BIN := $(VENV)/bin
FOLDERS := $(filter-out frontend,$(patsubst %/__init__.py,%,$(wildcard */__init__.py)))
SOURCES := frontend $(FOLDERS)

# What takes longer than `make test` may: resumable, its evidence in tests/evidence/. SOAKS chooses: machine, random_designs, smt, certificates.
SOAKS ?= machine random_designs smt certificates
.PHONY: check test soak bench torch lint types doctest pytest architecture reference clean

check: $(VENV)/.installed
	$(BIN)/fencepost check designs/

test: lint types doctest pytest

soak: $(VENV)/.installed-test
	@code=0; for soak in $(SOAKS); do \
	echo "== tests/soak_$$soak.py"; $(BIN)/python tests/soak_$$soak.py || code=1; done; exit $$code

# Every figure is printed with its target; a missed target is an exit code of 1, and the others still run.
bench: $(VENV)/.installed-test
	@code=0; for bench in growth engines diff singles clocks machine counterexamples conditions certificates; do \
	echo "== benchmarks/$$bench.py"; $(BIN)/python -W ignore benchmarks/$$bench.py || code=1; done; exit $$code

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .

# mypy sees the folders as the packages that they are installed as, through a tree of links.
types: $(VENV)/.installed-test
	@rm -rf build/types && mkdir -p build/types/fencepost
	@for entry in frontend/*; do ln -s "$(CURDIR)/$$entry" build/types/fencepost/; done
	@for folder in $(FOLDERS); do ln -s "$(CURDIR)/$$folder" build/types/fencepost/$$folder; done
	MYPYPATH=build/types $(BIN)/mypy --strict -p fencepost

# By import, so that a module has one name; `--doctest-modules` on paths would import each a second time.
doctest: $(VENV)/.installed-test
	$(BIN)/python tests/doctests.py

pytest: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS) --durations=10 -rs

# What needs PyTorch is skipped visibly until this has been run; wheels of this version exist for CPUs too.
torch: $(VENV)/.installed-test
	$(BIN)/pip install torch==2.13.0

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.installed

# The file lists of ARCHITECTURE.md, from the docstrings.
architecture:
	$(PYTHON) tests/architecture.py

# The generated pages; a test says when they are old.
reference: $(VENV)/.installed
	$(BIN)/python -m fencepost.model.language.reference > docs/language.md
	$(BIN)/python -m fencepost.model.operations.reference > docs/reference.md

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache
