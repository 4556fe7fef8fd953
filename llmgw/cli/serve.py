"""`llmgw serve`: the control plane. Agents and gateways connect to it; the other verbs ask it."""

import pathlib

import click

from llmgw.cli.options import Address, Duration, timers_option


@click.command()
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:7600",
    show_default=True,
    help="For agents, gateways and the CLI.",
)
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="Revisions, roster, epoch."
)
@click.option("--cluster", default="llmgw", show_default=True, help="The name people see in prompts.")
@click.option(
    "--heartbeat",
    type=Duration(),
    default="5s",
    show_default=True,
    help="How often agents say they are there.",
)
@timers_option
def command(
    listen: tuple[str, int],
    given: pathlib.Path | None,
    cluster: str,
    heartbeat: float,
    timers: tuple[str, ...],
) -> None:
    """Run the control plane in the foreground, until SIGTERM or Ctrl-C. Engines go on without it."""
    from llmgw.cli.doing import serve

    serve.run(listen, given, cluster, heartbeat, timers)
