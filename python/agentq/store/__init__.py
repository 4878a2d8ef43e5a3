"""The run store: the data of a run, safe against kills."""

from agentq.store.records import EXHAUSTED, TERMINAL, TreeRecord
from agentq.store.run import RunStore

__all__ = ["EXHAUSTED", "TERMINAL", "RunStore", "TreeRecord"]
