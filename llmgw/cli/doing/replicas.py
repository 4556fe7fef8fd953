"""The work of `llmgw replicas`: the rows that the control plane answers, or some of them."""

from llmgw.cli.client import Client
from llmgw.cli.doing.rows import show
from llmgw.cli.known import check_known
from llmgw.cli.screens import replica_lines
from llmgw.planning.screen import ReplicaRow


def run(
    models: tuple[str, ...],
    nodes: tuple[str, ...],
    states: tuple[str, ...],
    not_ready: bool,
    output: str,
    watch: bool,
    server: str | None,
) -> None:
    """Print a row each, of these models, on these nodes, in these states; all where none are named."""
    client = Client(server)
    check_known(client, models, "models")
    check_known(client, nodes, "nodes")
    asked = {state.casefold() for state in states}

    def wanted(row: ReplicaRow) -> bool:
        return (
            (not models or row.model in models)
            and (not nodes or bool(set(nodes) & set(row.nodes)))
            and (not asked or row.state.casefold() in asked)
            and not (not_ready and row.state == "Ready")
        )

    def name(row: ReplicaRow) -> str:
        return row.replica

    show(
        "replicas",
        tuple[ReplicaRow, ...],
        replica_lines,
        name,
        output=output,
        watch=watch,
        server=server,
        wanted=wanted,
    )
