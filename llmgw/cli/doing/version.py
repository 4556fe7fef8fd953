"""The work of `llmgw version`: what everybody said of which release they are."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import click

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.exits import Exit
from llmgw.errors import Unreachable
from llmgw.kit.text import columns, safe

OURS = importlib.metadata.version("llmgw")


def run(output: str, client: bool, server: str | None) -> int:
    """Print the table; returns the exit code, which is that of an unreachable control plane where it is."""
    told: Mapping[str, Any] | None = None
    away: Unreachable | None = None
    if not client:
        try:
            told = Client(server).get("/v1/versions")
        except Unreachable as error:
            away = error
    if output == "text":
        click.echo("\n".join(version_lines(OURS, told)))
    else:
        click.echo(document("version", {"cli": OURS, "fleet": told}, output))
    if away is not None:
        away.answered = True
        raise away
    return Exit.DONE


def version_lines(ours: str, told: Mapping[str, Any] | None) -> list[str]:
    """A row a process; `!` where its release is not the control plane's, which is what the others talk to."""
    if told is None:
        return [f"llmgw {ours}"]
    plane = str(told["build"])
    rows = [("this command", "", ours), ("control plane", str(told["cluster"]), plane)]
    rows += [("agent", str(each["name"]), str(each["build"])) for each in told["agents"]]
    rows += [("gateway", str(each["name"]), str(each["build"])) for each in told["gateways"]]
    body = [
        [kind, safe(name) or "-", safe(build) or "not known", "" if build in (plane, "") else "! differs"]
        for kind, name, build in rows
    ]
    return columns([["WHAT", "NAME", "RELEASE", ""], *body])
