# The same commands everywhere: setup, demo, test, lint, build, bench. Needs Python 3.11, a C++ compiler and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Two threads of an inference engine on a busy small machine are slower than one.
export OMP_NUM_THREADS ?= 1

CORE := CMakeLists.txt $(wildcard csrc/*) $(wildcard bindings/*)

# An environment of its own in $(1) that also sees $(VENV).
define beside
	$(BIN)/python -m venv $(1)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/agentq.pth"
endef

.PHONY: setup browser browsergym demo test test-vllm lint build bench bench-setup sanitize mutants clean

setup: $(VENV)/.core

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agentq needs Python 3.11 or newer; " + sys.executable + " is " + sys.version.split()[0] + " (set PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)

# Everything from package registries, at the versions of constraints.txt. Once, and again when the list changes.
$(VENV)/.deps: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    e = p["optional-dependencies"]; print(*p["dependencies"], *e["train"], *e["openai"], *e["dev"], sep="\n")' > $(VENV)/requirements.txt
	$(PIP) install -q -c constraints.txt -r $(VENV)/requirements.txt
	@touch $@

# agentq itself, editable: its Python is used in place; the extension is built again when its sources are newer.
$(VENV)/.core: $(VENV)/.deps $(CORE)
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

# What the browser tests need: Playwright, the MiniWoB++ pages, a Chromium (Debian's if there is none). Optional.
browser: setup
	$(PIP) install -q -c constraints.txt playwright cryptography
	$(PIP) install -q -c constraints.txt --no-deps miniwob
	command -v chromium-headless-shell chromium google-chrome >/dev/null || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-liberation; } || \
	    $(BIN)/playwright install --with-deps --only-shell chromium

# BrowserGym, in an environment of its own: it is driven through agentq env serve. Optional.
BROWSERGYM := build/browsergym
browsergym: $(BROWSERGYM)/.done

$(BROWSERGYM)/.done: constraints.txt
	$(PYTHON) -m venv $(BROWSERGYM)
	$(BROWSERGYM)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt browsergym-core browsergym-miniwob
	$(BROWSERGYM)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt --no-deps miniwob
	@touch $@

demo: setup
	$(BIN)/agentq demo $(ARGS)

test: setup
	$(BIN)/python -m pytest $(ARGS)

# Engines over a real vLLM, in an environment of its own (2.5 GB) that also sees $(VENV). Not part of `make test`.
VLLM := build/vllm
$(VLLM)/.deps: tests/vllm/requirements.txt | $(VENV)/.core
	$(call beside,$(VLLM))
	$(VLLM)/bin/python -m pip --disable-pip-version-check install -q --no-deps -r $<
	@touch $@

test-vllm: setup $(VLLM)/.deps
	$(VLLM)/bin/python -m pytest -W ignore tests/vllm $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

build: setup
	$(PIP) wheel -q --no-build-isolation --no-deps -w dist .

# BENCH=forest and any other file of benchmarks/; with the peers of bench-setup where they are installed.
BENCH ?= critic
bench: setup
	$(or $(wildcard $(PEERS)/bin/python),$(BIN)/python) benchmarks/$(BENCH).py $(ARGS)

# What forest.py and learner.py of benchmarks/ compare with, in an environment of its own that also sees $(VENV); and what
# remote.py measures.
PEERS := build/peers
bench-setup: setup browsergym
	$(call beside,$(PEERS))
	$(PEERS)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -r benchmarks/peers.txt
	$(PEERS)/bin/python -m pip --disable-pip-version-check install -q --no-deps llm-reasoners==1.0.2

# The core under random calls and forged snapshots; OPERATIONS=10000000 takes hours.
OPERATIONS ?= 200000
NATIVE := -std=c++20 -O1 -g -ffp-contract=off -I. -pthread
sanitize:
	mkdir -p build/native
	$(CXX) $(NATIVE) -fsanitize=address,undefined -fno-sanitize-recover=all tests/native/stress.cc csrc/*.cc -o build/native/stress
	$(CXX) $(NATIVE) -fsanitize=address,undefined -fno-sanitize-recover=all tests/native/fuzz_snapshot.cc csrc/*.cc -o build/native/fuzz
	$(CXX) $(NATIVE) -fsanitize=thread tests/native/stress.cc csrc/*.cc -o build/native/race
	build/native/stress $(OPERATIONS) 1 1
	build/native/fuzz $(OPERATIONS) 1
	build/native/race $(OPERATIONS) 2 4

# One-line faults in csrc/, in credit and in losses, each of which a test must notice.
mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)
	$(BIN)/python -m tests.native.mutants $(ARGS)

clean:
	rm -rf build dist $(VENV)
