"""The program that the other Python runs. It uses only modules of agentq that need nothing but the standard library.

agentq is not installed there, so its packages are made available without running their `__init__`.
"""

import os
import runpy
import sys
import types

ROOT = os.path.dirname(os.path.abspath(__file__)).rsplit(os.sep, 3)[0]

if __name__ == "__main__":
    if sys.version_info < (3, 9):  # noqa: UP036  (it is not agentq's)
        sys.exit("an environment's Python must be 3.9 or newer; " + sys.executable + " is " + sys.version.split()[0])
    del sys.path[0]  # this folder, whose browsergym.py would hide the package of that name
    for name in ("agentq", "agentq.envs", "agentq.envs.browser", "agentq.envs.remote"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [os.path.join(ROOT, *name.split("."))]
    runpy.run_module("agentq.envs.remote.env_process", run_name="__main__", alter_sys=True)
