"""The work of `llmgw nodes`: the rows that the control plane answers, as a table or as they are."""

from llmgw.cli.doing.rows import show
from llmgw.cli.screens import node_lines
from llmgw.planning.screen import NodeRow


def run(output: str, server: str | None) -> None:
    """Print a row each."""
    show("/v1/nodes", tuple[NodeRow, ...], node_lines, output, server)
