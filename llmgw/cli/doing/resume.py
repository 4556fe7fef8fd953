"""The work of `llmgw resume`."""

from llmgw.cli.acts import act


def run(model: str, reason: str, server: str | None) -> int:
    """Do it; returns the exit code."""
    return act("resume", model, server, reason=reason)
