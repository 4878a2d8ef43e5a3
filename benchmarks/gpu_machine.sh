#!/bin/sh
# Installs agentq, editable, into PYTHON (default python3) on a machine without network, from the wheels of
# `make gpu-wheels`. The machine needs Python 3.12, a C++ compiler, torch, transformers, peft, accelerate, numpy, rich,
# jinja2 and lxml; gpu_peers.txt says what TRL needs besides.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
WHEELS=${WHEELS:-build/gpu-wheels}
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
"$PYTHON" -m pip install -q --no-index --find-links "$WHEELS" -r benchmarks/gpu.txt
"$PYTHON" -m pip install -q --no-index --no-build-isolation --no-deps -e .
"$PYTHON" -m pip install -q --no-index --no-deps --find-links "$WHEELS" -r benchmarks/gpu_peers.txt
"$PYTHON" -m agentq --version
