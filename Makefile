# The same commands everywhere: setup, demo, test, lint, build, bench. Needs Python 3.11, a C++ compiler and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Two threads of an inference engine on a busy small machine are slower than one.
export OMP_NUM_THREADS ?= 1

CORE := CMakeLists.txt $(wildcard csrc/*) $(wildcard bindings/*)

.PHONY: setup demo test lint build bench clean

setup: $(VENV)/.core

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agentq needs Python 3.11 or newer; " + sys.executable + " is " + sys.version.split()[0] + " (set PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)

# Everything from package registries, at the versions of constraints.txt. Once, and again when the list changes.
$(VENV)/.deps: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    e = p["optional-dependencies"]; print(*p["dependencies"], *e["train"], *e["dev"], sep="\n")' > $(VENV)/requirements.txt
	$(PIP) install -q -c constraints.txt -r $(VENV)/requirements.txt
	@touch $@

# agentq itself, editable: its Python is used in place; the extension is built again when its sources are newer.
$(VENV)/.core: $(VENV)/.deps $(CORE)
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

demo: setup
	$(BIN)/agentq demo $(ARGS)

test: setup
	$(BIN)/python -m pytest $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

build: setup
	$(PIP) wheel -q --no-build-isolation --no-deps -w dist .

bench: setup
	$(BIN)/python benchmarks/critic.py $(ARGS)

clean:
	rm -rf build dist $(VENV)
