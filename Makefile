# Every target sets itself up: a fresh machine needs python3 (3.11 or newer) and this checkout, nothing else.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.PHONY: demo check test lint docs clean

demo: $(VENV)/.installed
	$(BIN)/python -m fixformer.cli.demo

# The style, the types and the unit tests, in a minute or two: for use while working.
check: $(VENV)/.installed
	$(BIN)/ruff check --no-cache src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Everything: also tests that start processes, train, read real data, install the wheel, run the README.
test: $(VENV)/.installed $(VENV)/.browser
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

# Debian's Chromium, for the tests of the page; where it cannot be installed, they are skipped.
$(VENV)/.browser: $(VENV)/.installed
	@if ! [ -x /usr/bin/chromium ]; then \
	  if [ "$$(id -u)" = 0 ]; then as=env; else as="sudo -n env"; fi; \
	  { $$as apt-get update -qq && $$as DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    chromium; } >/dev/null 2>&1 || echo "chromium cannot be installed with apt-get; the tests of the page are skipped"; \
	fi
	@if [ -x /usr/bin/chromium ]; then touch $@; fi
