"""The run store: what a run saw, kept so that it survives being killed."""

from agentq.store.records import EXHAUSTED, TERMINAL, TreeRecord
from agentq.store.run import RunStore

__all__ = ["EXHAUSTED", "TERMINAL", "RunStore", "TreeRecord"]
