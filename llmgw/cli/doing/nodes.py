"""The work of `llmgw nodes`: the rows that the control plane answers."""

from llmgw.cli.doing.rows import show
from llmgw.cli.screens import node_lines
from llmgw.planning.screen import NodeRow


def run(output: str, watch: bool, server: str | None) -> None:
    """Print a row each."""
    show(
        "nodes",
        tuple[NodeRow, ...],
        node_lines,
        lambda row: str(row.name),
        output=output,
        watch=watch,
        server=server,
    )
