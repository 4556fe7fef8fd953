"""The work of `llmgw doctor`: facts of the control plane, judged."""

import dataclasses
import datetime
import os
import pathlib
from typing import Any

import click

from llmgw.cli.checks import Finding, findings
from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.doing.completion import place
from llmgw.cli.doing.version import OURS
from llmgw.cli.exits import Exit, of_error
from llmgw.cli.here import findings_here
from llmgw.cli.output import say
from llmgw.errors import LlmgwError
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import columns, safe

WORDS = {"ok": "ok", "warning": "warning:", "wrong": "WRONG"}


def run(output: str, server: str | None) -> int:
    """Print every finding; returns 1 where something is wrong, and why where nothing can be asked."""
    clock, client = SystemClock(), Client(server)
    began = clock.now()
    try:
        facts = client.get("/v1/doctor")
    except LlmgwError as error:
        found, code = [Finding("wrong", "control plane", error.said, error.help)], of_error(error)
    else:
        took = clock.now() - began
        middle = clock.wall() - datetime.timedelta(seconds=took / 2)
        facts = {**facts, "clocks": _clocks(client)}
        found = findings(facts, ours=OURS, wall=middle, took=took, server=client.server)
        code = Exit.FAILED if any(each.grade == "wrong" for each in found) else Exit.DONE
    found += findings_here(
        token=client.sends_token, environment=os.environ, directory=pathlib.Path(), place=place
    )
    if output == "text":
        say(doctor_lines(found))
    else:
        items = [dataclasses.asdict(each) for each in found]
        click.echo(document("doctor", {"ok": code == Exit.DONE, "items": items}, output))
    return code


def _clocks(client: Client) -> list[dict[str, Any]] | None:
    """What the clocks of agents and gateways show; None where the control plane did not tell."""
    try:
        rows: list[dict[str, Any]] = client.get("/v1/clocks")
    except LlmgwError:
        return None
    return rows


def doctor_lines(found: list[Finding]) -> list[str]:
    """A row a finding, with what would help under it; the last line counts."""
    table = columns([[WORDS[each.grade], each.what, safe(each.said)] for each in found])
    lines: list[str] = []
    for each, line in zip(found, table, strict=True):
        lines.append(line)
        if each.help:
            lines.append(f"  help: {safe(each.help)}")
    wrong = sum(each.grade == "wrong" for each in found)
    warnings = sum(each.grade == "warning" for each in found)
    lines.append(f"{wrong} wrong, {warnings} worth knowing, {len(found) - wrong - warnings} as it should be")
    return lines
