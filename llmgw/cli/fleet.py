"""`llmgw fleet export`: the fleet as a file, to plan against where the control plane cannot be reached."""

import pathlib

import click

from llmgw.cli.options import PATH, server_option


@click.group()
def command() -> None:
    """The fleet as the control plane sees it."""


@command.command()
@click.option("--redact", is_flag=True, help="Without names of machines, addresses, cards and people.")
@click.option("-f", "--file", "path", type=PATH, metavar="FILE", help="Write it there. [default: stdout]")
@server_option
def export(redact: bool, path: pathlib.Path | None, server: str | None) -> None:
    """Print all that a plan is made of: nodes, replicas, marks, what was measured, and the applied catalog.

    `llmgw plan --fleet FILE` rehearses against it, by the functions that the control plane uses. With
    --redact it names no machine, address, card or person; models, labels and the applied catalog stay.
    """
    from llmgw.cli.doing import fleet

    fleet.export(redact, path, server)
