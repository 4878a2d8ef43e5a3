"""Puts the module in $AGENTQ_FAULT in the place of the real one, in every Python that has this folder on PYTHONPATH.

$AGENTQ_FAULT: name of the module, file to load it from, and the real file, whose name tracebacks show.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class _Source(SourceFileLoader):
    """Python source from another file. Compiled anew, since the real file's bytecode is cached."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(Path(FILE).read_bytes(), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        loader = _Source(fullname, REAL) if FILE.endswith(".py") else None
        return spec_from_file_location(fullname, REAL if loader else FILE, loader=loader)


if "AGENTQ_FAULT" in os.environ:
    MODULE, FILE, REAL = os.environ["AGENTQ_FAULT"].split(os.pathsep)
    sys.meta_path.insert(0, _Finder())
