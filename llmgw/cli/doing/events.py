"""The work of `llmgw events`: read on from the last number seen."""

import time
from collections.abc import Collection, Iterable
from typing import Any

import click

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.known import check_known
from llmgw.errors import Unreachable
from llmgw.kit.text import safe

LONG_POLL = 20
AGAIN = 1.0
"""Seconds until a control plane that is away is asked again."""

Entry = dict[str, Any]


def run(about: str | None, kinds: Collection[str], output: str, watch: bool, server: str | None) -> None:
    """Print what happened; with `watch` until somebody ends it."""
    client = Client(server)
    epoch = client.get("/v1/status")["epoch"] if watch else 0

    def wanted(entry: Entry) -> bool:
        return (not kinds or entry["kind"] in kinds) and (about is None or _is_about(entry, about))

    entries = client.get("/v1/events", after=0)
    found = [entry for entry in entries if wanted(entry)]
    if about is not None and not any(_is_about(entry, about) for entry in entries):
        check_known(client, [about], "models", "aliases", "nodes", "replicas")
    _show(found, output, watch)
    while watch:
        last = int(entries[-1]["number"]) if entries else 0
        try:
            news = client.get("/v1/events", after=last, wait=LONG_POLL)
        except Unreachable as error:
            click.echo(f"{safe(error.said)}; asking again", err=True)
            time.sleep(AGAIN)
            if (now := _epoch(client, epoch)) != epoch:
                entries, epoch = [], now
            continue
        _show([entry for entry in news if wanted(entry)], output, watch)
        entries = news or entries


def _is_about(entry: Entry, name: str) -> bool:
    """Whether it is about this, or about a replica of this model."""
    of = str(entry["about"])
    return of == name or of.startswith(f"{name}/")


def _epoch(client: Client, before: int) -> int:
    """The control plane's, which counts its events anew after a restart; as before while it is away."""
    try:
        return int(client.get("/v1/status")["epoch"])
    except Unreachable:
        return before


def _show(entries: Iterable[Entry], output: str, watch: bool) -> None:
    if output in ("json", "yaml") and not watch:
        click.echo(document("events", {"items": list(entries)}, output))
        return
    for entry in entries:
        click.echo(_line(entry, output))


def _line(entry: Entry, output: str) -> str:
    if output in ("json", "yaml"):
        return document("event", {"event": entry}, "json", line=True)
    if output == "name":
        return safe(entry["about"])
    number = f"{entry['number']:6}  " if output == "wide" else ""
    return f"{number}{entry['at'][:19]}Z  {entry['kind']:8}{safe(entry['about'])}  {safe(entry['said'])}"
