"""The work of `llmgw pause`."""

from llmgw.cli.acts import act


def run(model: str, reason: str, seconds: float | None, server: str | None) -> int:
    """Do it; returns the exit code."""
    return act("pause", model, server, reason=reason, seconds=seconds)
