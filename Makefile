# Every target sets itself up: a fresh machine needs python3 (3.11 or newer) and this checkout, nothing else.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.PHONY: demo test lint docs clean

demo: $(VENV)/.installed
	$(BIN)/python -m fixformer.cli.demo

test: $(VENV)/.installed
	$(BIN)/ruff check --no-cache src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed
	$(BIN)/ruff check --no-cache --fix src tests tools
	$(BIN)/ruff format src tests tools
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python tools/update_docs.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache demo

# constraints.txt pins every version, so that the tested set is the installed set.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
