"""The work of `llmgw models`: the rows that the control plane answers, as a table or as they are."""

from llmgw.cli.doing.rows import show
from llmgw.cli.screens import model_lines
from llmgw.planning.screen import ModelRow


def run(output: str, server: str | None) -> None:
    """Print a row each."""
    show("/v1/models", tuple[ModelRow, ...], model_lines, output, server)
