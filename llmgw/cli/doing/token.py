"""The work of `llmgw token`: through the API, or in the state directory of a control plane of this machine."""

import pathlib

import click

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.control.store import served
from llmgw.control.token_routes import TokenRow, row
from llmgw.control.tokens import Kind, Tokens
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import columns, safe


def create(
    node: str | None,
    gateway: str | None,
    api: bool,
    ttl: float | None,
    server: str | None,
    state_dir: pathlib.Path | None,
    output: str,
) -> None:
    """Print a new token on stdout, and for whom it is on stderr: by default for the first node that uses it."""
    kind: Kind = "api" if api else "gateway" if gateway is not None else "node"
    if state_dir is not None and not served(state_dir):
        click.echo(f"no control plane has served from {safe(str(state_dir))} yet: is it the one?", err=True)
    text, made = _created(kind, node or gateway or "", ttl, server, state_dir)
    if output != "text":
        click.echo(document("token", {"token": text, **made.model_dump()}, output))
        return
    click.echo(text)
    click.echo(f"token {made.id} for {_for(made)}: it is shown this once", err=True)


def show(server: str | None, state_dir: pathlib.Path | None, output: str) -> None:
    """Print a row each."""
    if state_dir is not None:
        rows = [row(token) for token in _tokens(state_dir).rows()]
    else:
        rows = Client(server).read(list[TokenRow], "/v1/tokens")
    if output != "text":
        click.echo(document("tokens", {"items": [each.model_dump() for each in rows]}, output))
        return
    head = ["ID", "FOR", "USED BY", "MADE", "WAITS UNTIL"]
    body = [
        [each.id, _for(each), each.bound or "-", each.created[:16], each.until[:16] or "-"] for each in rows
    ]
    for line in columns([head, *([safe(cell) for cell in cells] for cells in body)]):
        click.echo(line)


def revoke(number: str, server: str | None, state_dir: pathlib.Path | None) -> None:
    """Forget it. Raises Failed where there is none."""
    if state_dir is not None:
        _tokens(state_dir).revoke(number)
    else:
        Client(server).post("/v1/tokens/revoke", {"id": number})
    click.echo(f"token {safe(number)} is revoked", err=True)


def _created(
    kind: Kind, name: str, ttl: float | None, server: str | None, state_dir: pathlib.Path | None
) -> tuple[str, TokenRow]:
    if state_dir is not None:
        text, token = _tokens(state_dir).create(kind, name, ttl)
        return text, row(token)
    answer = Client(server).post("/v1/tokens", {"kind": kind, "name": name, "ttl": ttl})
    return str(answer["token"]), TokenRow.model_validate(answer["row"])


def _tokens(state_dir: pathlib.Path) -> Tokens:
    return Tokens(state_dir, SystemClock().wall)


def _for(token: TokenRow) -> str:
    if token.kind == "api":
        return "the CLI"
    return f"{token.kind} {token.name}" if token.name else f"any {token.kind}"
