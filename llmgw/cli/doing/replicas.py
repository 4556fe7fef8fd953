"""The work of `llmgw replicas`: the rows that the control plane answers, as a table or as they are."""

from llmgw.cli.doing.rows import show
from llmgw.cli.screens import replica_lines
from llmgw.planning.screen import ReplicaRow


def run(output: str, server: str | None) -> None:
    """Print a row each."""
    show("/v1/replicas", tuple[ReplicaRow, ...], replica_lines, output, server)
