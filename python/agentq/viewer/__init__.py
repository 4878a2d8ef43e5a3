"""The viewer: every tree and episode of a run in one page, as a file or served while the run goes on."""

from agentq.viewer.page import write_view
from agentq.viewer.serve import ViewServer

__all__ = ["ViewServer", "write_view"]
