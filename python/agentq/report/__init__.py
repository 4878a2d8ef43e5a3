"""The one-file HTML report of a run."""

from agentq.report.page import write_report

__all__ = ["write_report"]
