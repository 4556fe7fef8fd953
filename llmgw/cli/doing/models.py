"""The work of `llmgw models`: the rows that the control plane answers."""

from llmgw.cli.doing.rows import show
from llmgw.cli.screens import model_lines
from llmgw.planning.screen import ModelRow


def run(output: str, watch: bool, server: str | None) -> None:
    """Print a row each."""
    show(
        "models",
        tuple[ModelRow, ...],
        model_lines,
        lambda row: str(row.model),
        output=output,
        watch=watch,
        server=server,
    )
