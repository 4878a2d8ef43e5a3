# The same commands everywhere: setup, demo, test, lint, build, bench. Needs Python 3.11, a C++ compiler and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# On a busy small machine, an inference engine is slower with two threads than with one.
export OMP_NUM_THREADS ?= 1

# Tests and benchmarks open only their own pages, often as root in a container, where Chromium's sandbox does not work.
test test-rest test-vllm bench bench-all: export AGENTQ_NO_SANDBOX ?= 1
# The interpreter of `apps` is a program beside Python, which the Python of the peers does not have.
bench bench-all: export PATH := $(CURDIR)/$(BIN):$(PATH)

CORE := CMakeLists.txt $(wildcard csrc/*) $(wildcard bindings/*)

# A separate virtual environment in $(1) that also sees $(VENV).
define beside
	$(BIN)/python -m venv $(1)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/agentq.pth"
endef

.PHONY: setup browser ray browsergym textworld webarena appworld apps apps-suite widgets demo test test-rest test-vllm lint build bench bench-all bench-setup gpu-wheels sanitize windows mutants docs clean

setup: $(VENV)/.core

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agentq needs Python 3.11 or newer; " + sys.executable + " is " + sys.version.split()[0] + " (set PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)

# All packages from registries, at the versions in constraints.txt. Installed again when the list changes.
$(VENV)/.deps: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    e = p["optional-dependencies"]; print(*p["dependencies"], *e["train"], *e["openai"], *e["apps"], *e["gymnasium"], *e["mcp"], *e["dev"], sep="\n")' > $(VENV)/requirements.txt
	$(PIP) install -q -c constraints.txt -r $(VENV)/requirements.txt
	@touch $@

# agentq itself, editable: its Python is used in place, and the extension is rebuilt when its sources are newer. Any
# other package named agentq (another project's, or this one's former name) is removed first, since it would share
# files.
$(VENV)/.core: $(VENV)/.deps $(CORE)
	@! $(PIP) show -q agentq 2>/dev/null || $(PIP) uninstall -q -y agentq
	$(PIP) install -q --no-build-isolation --no-deps -C cmake.define.AGENTQ_STRICT=ON -e .
	@touch $@

# Dependencies of the browser tests: Playwright, the MiniWoB++ pages, a Chromium (Debian's if there is none). Optional.
browser: setup
	$(PIP) install -q -c constraints.txt playwright cryptography
	$(PIP) install -q -c constraints.txt --no-deps miniwob
	command -v chromium-headless-shell chromium google-chrome >/dev/null || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-liberation; } || \
	    $(BIN)/playwright install --with-deps --only-shell chromium

# Ray (80 MB) for the tests of clusters, and simpy for benchmarks/scale.py. Optional.
ray: setup
	$(PIP) install -q -c constraints.txt ray simpy

# BrowserGym in a separate virtual environment; agentq drives it through `agentq env serve`. Optional.
BROWSERGYM := build/browsergym
browsergym: $(BROWSERGYM)/.done

$(BROWSERGYM)/.done: constraints.txt
	$(PYTHON) -m venv $(BROWSERGYM)
	$(BROWSERGYM)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt browsergym-core browsergym-miniwob
	$(BROWSERGYM)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt --no-deps miniwob
	@touch $@

# TextWorld (400 MB), with the planner and the domain of ALFWorld's games, in a separate virtual environment; agentq plays
# it through `agentq env serve`. Optional.
TEXTWORLD := build/textworld
textworld: $(TEXTWORLD)/.done

$(TEXTWORLD)/.done:
	$(PYTHON) -m venv $(TEXTWORLD)
	$(TEXTWORLD)/bin/python -m pip --disable-pip-version-check install -q 'textworld[pddl]==1.7.0'
	$(TEXTWORLD)/bin/python -m pip --disable-pip-version-check install -q --no-deps alfworld==0.4.2
	@touch $@

# WebArena's own evaluators in a separate virtual environment, beside ours in benchmarks/worlds.py. Without what only its
# agents and sites need. Optional.
WEBARENA := build/webarena
webarena: $(WEBARENA)/.done

$(WEBARENA)/.done: benchmarks/webarena.txt
	$(PYTHON) -m venv $(WEBARENA)
	$(WEBARENA)/bin/python -m pip --disable-pip-version-check install -q --no-deps -c constraints.txt -r $<
	@touch $@

# AppWorld's server in a separate virtual environment, for `--env appworld@HOST:PORT`. Its data is downloaded by
# `appworld download data`. Optional.
APPWORLD := build/appworld
appworld: $(APPWORLD)/.done

$(APPWORLD)/.done:
	$(PYTHON) -m venv $(APPWORLD)
	$(APPWORLD)/bin/python -m pip --disable-pip-version-check install -q appworld==0.1.3.post1
	$(APPWORLD)/bin/appworld install
	@touch $@

# Real applications for `--env suite/...`, each in an environment of its own. Optional. What is there is kept.
APPS := build/apps
NAMES := $(basename $(notdir $(wildcard benchmarks/apps/*.txt)))
apps: $(NAMES:%=$(APPS)/%/.done) $(APPS)/widgets/.done
$(APPS)/%/.done: benchmarks/apps/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install -q -r $<
	@touch $@

# Every task of the suite by its scripted expert, from observations alone.
apps-suite: setup apps
	$(BIN)/python benchmarks/web.py --only experts $(ARGS)

# Widget libraries from npm, for pages of the suite and of benchmarks/web.py.
widgets: $(APPS)/widgets/.done
$(APPS)/widgets/.done: benchmarks/web_pages/package.json
	mkdir -p $(@D) && cp $< $(@D)
	cd $(@D) && npm install --no-audit --no-fund --ignore-scripts --silent
	@touch $@

demo: setup
	$(BIN)/agentq demo $(ARGS)

# The tests of data and formulas: five minutes on two cores, one process per core. WORKERS=0 uses a single process, for
# a debugger.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: setup
	$(PYTEST) $(ARGS)

# All other tests: Chromium, BrowserGym, kill matrices, every expert and page, a real vLLM. Half an hour.
test-rest: setup
	$(PYTEST) -m 'rest or browser' $(ARGS); status=$$?; $(MAKE) test-vllm && exit $$status

# Engines with a real vLLM, in a separate virtual environment (2.5 GB) that also sees $(VENV). Part of `make test-rest`.
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
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32
	$(BIN)/python -m pytest -q tests/test_package.py

build: setup
	$(PIP) wheel -q --no-build-isolation --no-deps -w dist .

# BENCH=NAME runs benchmarks/NAME.py, with the peers from bench-setup if they are installed.
BENCH ?= critic
bench: setup
	$(or $(wildcard $(PEERS)/bin/python),$(BIN)/python) benchmarks/$(BENCH).py $(ARGS)

# Runs a short form of every benchmark in at most 40 minutes and lists the targets met and missed.
bench-all: setup
	$(or $(wildcard $(PEERS)/bin/python),$(BIN)/python) benchmarks/all.py $(ARGS)

# The peers that benchmarks/forest.py and learner.py compare with, in a separate virtual environment that also sees
# $(VENV), and BrowserGym for benchmarks/remote.py.
PEERS := build/peers
bench-setup: setup browsergym
	$(call beside,$(PEERS))
	$(PEERS)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -r benchmarks/peers.txt
	$(PEERS)/bin/python -m pip --disable-pip-version-check install -q --no-deps llm-reasoners==1.0.2 lits-llm==0.4.0

# What benchmarks/gpu_machine.sh installs on a machine with Python 3.12 and a GPU but without network: 59 MiB of wheels.
GPU_WHEELS := build/gpu-wheels
gpu-wheels: setup
	$(PIP) download -q -d $(GPU_WHEELS) --no-deps --only-binary=:all: --python-version 3.12 \
	    $(foreach glibc,31 28 17,--platform manylinux_2_$(glibc)_x86_64) --platform manylinux2014_x86_64 \
	    -c constraints.txt -r benchmarks/gpu.txt -r benchmarks/gpu_peers.txt
	@du -sh $(GPU_WHEELS)

# Tests the core with random calls and forged snapshots, and the bindings with random arguments, under sanitizers.
# OPERATIONS=10000000 takes hours.
OPERATIONS ?= 200000
NATIVE := -std=c++20 -O1 -g -fPIC -ffp-contract=off -I. -pthread
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all
ASAN_CORE := $(patsubst csrc/%.cc,build/native/%.o,$(wildcard csrc/*.cc))
build/native/%.o: csrc/%.cc $(wildcard csrc/*.h)
	mkdir -p build/native
	$(CXX) $(NATIVE) $(ASAN) -c $< -o $@
build/native/stress build/native/fuzz_snapshot: build/native/%: tests/native/%.cc $(ASAN_CORE)
	$(CXX) $(NATIVE) $(ASAN) $^ -o $@
build/native/race: tests/native/stress.cc $(CORE)
	mkdir -p build/native
	$(CXX) $(NATIVE) -fsanitize=thread tests/native/stress.cc csrc/*.cc -o $@
build/native/_core.so: $(CORE) $(ASAN_CORE)
	$(CXX) $(NATIVE) $(ASAN) -shared -fvisibility=hidden $$($(BIN)/python -m pybind11 --includes) bindings/*.cc $(ASAN_CORE) -o $@

# Python is built without sanitizers, so their libraries are preloaded. Leak detection is off: Python leaks on exit.
sanitize: setup build/native/stress build/native/fuzz_snapshot build/native/race build/native/_core.so
	build/native/stress $(OPERATIONS) 1 1
	build/native/fuzz_snapshot $(OPERATIONS) 1
	build/native/race $(OPERATIONS) 2 4
	LD_PRELOAD="$$(for name in asan ubsan stdc++; do $(CXX) -print-file-name=lib$$name.so; done | tr '\n' ' ')" \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(BIN)/python tests/native/drive.py build/native/_core.so $(OPERATIONS) 1 2

# Compiles the core for Windows and runs it there, or in wine: random calls, forged snapshots, and the same search as
# here. On Debian, `apt-get install g++-mingw-w64-x86-64-posix wine wine64` has all it needs.
MINGW ?= x86_64-w64-mingw32-g++-posix
WINE  ?= wine
WINDOWS := build/windows
$(WINDOWS)/%.exe: %.cc $(CORE)
	mkdir -p $(dir $@)
	$(MINGW) -std=c++20 -O2 -static -ffp-contract=off -fopenmp-simd -Wall -Wextra -Wpedantic -Werror -I. csrc/*.cc $< -o $@
$(WINDOWS)/forest: benchmarks/forest.cc $(CORE)
	mkdir -p $(dir $@)
	$(CXX) -std=c++20 -O2 -ffp-contract=off -fopenmp-simd -I. csrc/*.cc $< -o $@
windows: $(WINDOWS)/tests/native/stress.exe $(WINDOWS)/tests/native/fuzz_snapshot.exe $(WINDOWS)/benchmarks/forest.exe $(WINDOWS)/forest
	$(WINE) $(WINDOWS)/tests/native/stress.exe $(OPERATIONS) 2 4
	$(WINE) $(WINDOWS)/tests/native/fuzz_snapshot.exe $(OPERATIONS) 1
	$(WINE) $(WINDOWS)/benchmarks/forest.exe 64 2000 5 4 1 1 | tr -d '\r' | cut -d ' ' -f 3- > $(WINDOWS)/there
	$(WINDOWS)/forest 64 2000 5 4 1 1 | cut -d ' ' -f 3- > $(WINDOWS)/here
	cmp $(WINDOWS)/there $(WINDOWS)/here

# Puts one-line faults into csrc/ and python/agentq/; for each, a test must fail. An interrupted run goes on.
mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)

# The site in build/site, in a separate virtual environment. Warnings are errors.
DOCS := build/docs
$(DOCS)/.done: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m pip --disable-pip-version-check install -q -r $(DOCS)/requirements.txt
	@touch $@
docs: $(DOCS)/.done
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict -q

clean:
	rm -rf build dist $(VENV)
