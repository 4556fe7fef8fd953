"""`llmgw up`: control plane, agent and gateway in one process on this machine; the way to try it.

Starts the three, plans and applies the catalog, waits until it serves, asks it one question, prints
the lines to copy next, and stays, following what is written in the catalog. Ctrl-C drains and stops
everything; weights and revisions stay. Started again, it follows on from there: a removed model or fewer
replicas wait for an apply, as they do while it runs.
"""

import pathlib

import click

from llmgw.cli.options import Address, AddressOrOff, catalog_argument


@click.command()
@catalog_argument
@click.option("--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="State and weights.")
@click.option("--control", "plane", type=Address(), default="127.0.0.1:7600", show_default=True)
@click.option(
    "--listen", type=Address(), default="127.0.0.1:8000", show_default=True, help="For OpenAI clients."
)
@click.option("--metrics", type=AddressOrOff(), default="127.0.0.1:9602", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of the three.")
def command(
    path: pathlib.Path,
    given: pathlib.Path | None,
    plane: tuple[str, int],
    listen: tuple[str, int],
    metrics: tuple[str, int] | None,
    verbose: bool,
) -> int:
    """Serve the catalog below PATH (default: ./catalog) on this machine, in the foreground.

    Started again, it follows on from what stood: what files take away is held for `llmgw apply`, and said.
    """
    from llmgw.cli.doing import up

    return up.run(path, given, plane, listen, metrics, verbose)
