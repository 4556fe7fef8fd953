"""`llmgw token`: who may join the fleet, and who may ask the control plane. It keeps hashes, never a token.

A token of a node belongs to the first node that uses it. Revoking one ends what was opened with it.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import click

from llmgw.cli.options import Duration, document_option, server_option
from llmgw.cli.security import PATH


@click.group()
def command() -> None:
    """Make, list and revoke the tokens of nodes, gateways and the CLI.

    They are asked for where the control plane listens beyond loopback, or with --require-tokens.
    """


def _where(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--state-dir`, `--server`."""
    option = click.option(
        "--state-dir",
        type=PATH,
        help="Work on the state directory of a control plane of this machine, not through its API.",
    )
    return server_option(option(function))


@command.command()
@click.option("--node", metavar="NAME", help="For this node only.")
@click.option("--any-node", is_flag=True, help="For the first node that uses it.")
@click.option("--gateway", metavar="NAME", help="For this gateway.")
@click.option("--api", is_flag=True, help="For the CLI: whoever has it may do everything here.")
@click.option(
    "--ttl",
    type=Duration(positive=True),
    help="How long it waits for its first use; one for the CLI ends then. [default: no end]",
)
@_where
@document_option
def create(
    *,
    node: str | None,
    any_node: bool,
    gateway: str | None,
    api: bool,
    ttl: float | None,
    server: str | None,
    state_dir: pathlib.Path | None,
    output: str,
) -> None:
    """Make a token and print it, this once. Keep it in a file that nobody else may read.

    \b
    (umask 077; llmgw token create --node gpu-1 > gpu-1.token)
    llmgw agent --token-file gpu-1.token ...
    """
    from llmgw.cli.doing import token

    if sum((node is not None, gateway is not None, any_node, api)) != 1:
        raise click.UsageError("a token is for one of them: --node NAME, --any-node, --gateway NAME or --api")
    token.create(node, gateway, api, ttl, server, state_dir, output)


@command.command("list")
@_where
@document_option
def list_(server: str | None, state_dir: pathlib.Path | None, output: str) -> None:
    """Every token: for whom, who uses it, until when it waits. Never the token itself."""
    from llmgw.cli.doing import token

    token.show(server, state_dir, output)


@command.command()
@click.argument("number", metavar="ID")
@_where
def revoke(number: str, server: str | None, state_dir: pathlib.Path | None) -> None:
    """Forget a token. What was opened with it ends within a second; engines go on."""
    from llmgw.cli.doing import token

    token.revoke(number, server, state_dir)
