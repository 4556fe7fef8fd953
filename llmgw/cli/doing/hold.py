"""The work of `llmgw hold`, and how a hold reads wherever it is shown."""

import getpass
from collections.abc import Mapping
from typing import Any

import click

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.kit.text import safe


def run(reason: str, seconds: float | None, server: str | None) -> int:
    """Hold; returns the exit code."""
    held = Client(server).post("/v1/hold", {"who": getpass.getuser(), "reason": reason, "seconds": seconds})
    click.echo(held_line(held))
    return Exit.DONE


def held_line(held: Mapping[str, Any]) -> str:
    """`ON HOLD by dana until 2026-01-01T18:00:00Z: driver upgrade`."""
    until = f" until {held['until'][:19]}Z" if held["until"] else ""
    return safe(f"ON HOLD by {held['who'] or '?'}{until}: {held['reason']}")
