# Two commands do all the set-up: `make book` and `make test`. See book/reproduce.md.
PYTHON ?= python3
MODELS ?= smollm2-135m
JOBS ?= 2
NORM ?= raw
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NOTEBOOKS := $(wildcard notebooks/*.py)
SITE := _build/html/index.html
# matplotlib makes folders in the home of whoever imports it; nothing but the venv and the cache is to be touched.
export MPLCONFIGDIR ?= $(CURDIR)/$(VENV)/matplotlib

.PHONY: book run test test-site test-colab lint bench clean notebooks readme repository install

install: $(STAMP)

# Recreated from nothing when what it should hold changes, so that it never holds more.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, {sys.executable} is {v.major}.{v.minor}; name another: make PYTHON=python3.12 ...")'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[book,test]'
	@touch $@

book: $(STAMP)
	$(BIN)/scaled-idempotence run --all-models --jobs $(JOBS) $(MODELS)
	$(BIN)/python book/_ext/assemble.py
	$(BIN)/jupyter-book build . --toc _build/_toc.yml --all -W -n --keep-going
	@echo "The book: $(CURDIR)/$(SITE)"

run: $(STAMP)
	@test -n "$(MODEL)" || { echo "which model? make run MODEL=smollm2-135m" >&2; exit 2; }
	$(BIN)/scaled-idempotence run $(MODEL) --norm $(NORM)

# A process a core, with one thread each: more threads than cores slow all of them down.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Needs a built book, and Chromium for the pages' own scripts.
test-site: $(STAMP)
	$(BIN)/python -m pytest tests/site --override-ini=testpaths= --run-site

# Each notebook from its .ipynb alone, in an environment that has torch and not the package.
test-colab: $(STAMP)
	$(BIN)/python -m pytest tests/colab --override-ini=testpaths= --run-colab

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# pymanopt and TransformerLens, the peers, are needed here and nowhere else.
$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/survey.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/capacity.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/rehearsal.py
	@echo "The figures: $(CURDIR)/benchmarks/results.json, and on the book's page on cost"

# The percent scripts are the source; the .ipynb files are derived, one way.
notebooks: $(STAMP)
	$(BIN)/jupytext --update --to ipynb $(NOTEBOOKS)

readme: $(STAMP)
	$(BIN)/scaled-idempotence survey smollm2-135m --top 0 --figure book/_static/closure_map.png

repository: $(STAMP)
	@test -n "$(URL)" || { echo "which address? make repository URL=https://github.com/me/fork" >&2; exit 2; }
	$(BIN)/python book/_ext/repository.py "$(URL)"
	$(MAKE) notebooks

clean:
	rm -rf $(VENV) _build executed failed results dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
