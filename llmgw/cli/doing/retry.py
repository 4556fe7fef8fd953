"""The work of `llmgw retry`."""

from llmgw.cli.acts import act


def run(model: str, reason: str, server: str | None) -> int:
    """Do it; returns the exit code."""
    return act("retry", model, server, reason=reason)
