"""The work of `llmgw history`: what the control plane keeps of its revisions, as tables and as it is."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import click
import pydantic

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.exits import Exit
from llmgw.errors import Failed
from llmgw.kit.text import columns, count, safe
from llmgw.kit.units import show_bytes
from llmgw.planning.fired import option
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines

MARK = {True: "*", False: " "}
_TITLE = 60


def run(last: int, output: str, server: str | None) -> int:
    """Print the newest revisions; returns the exit code."""
    rows = Client(server).get("/v1/history", last=last)
    if output != "text":
        click.echo(document("history", {"items": rows}, output))
        return Exit.DONE
    for line in history_lines(rows):
        click.echo(line)
    return Exit.DONE


def history_lines(rows: list[Mapping[str, Any]]) -> list[str]:
    """A row a revision; the one that stands has a star."""
    if not rows:
        return ["No revision yet: llmgw apply"]
    head = ["REVISION", "AT", "BY", "COMMIT", "PLAN", "ACTIONS", "RESULT", "MESSAGE"]
    body = [
        [
            f"{row['number']}{MARK[bool(row['stands'])]}".rstrip(),
            f"{row['at'][:19]}Z",
            row["who"] or "?",
            row["commit"] or "-",
            f"p-{row['plan'][:6]}",
            str(row["actions"]),
            row["result"] or "not recorded",
            row["message"].partition("\n")[0][:_TITLE],
        ]
        for row in rows
    ]
    return columns([head, *([safe(cell) for cell in cells] for cells in body)])


def show(number: int, directory: pathlib.Path | None, output: str, server: str | None) -> int:
    """Print everything of a revision; write its files below `directory` if one is named. Returns the exit code."""
    kept = Client(server).get("/v1/revision", number=number)
    if directory is not None:
        _write(kept["revision"]["files"], directory)
    if output != "text":
        click.echo(document("revision", kept, output))
        return Exit.DONE
    for line in (*revision_lines(kept), *_action_lines(kept["record"]), *_file_lines(kept["revision"])):
        click.echo(line)
    return Exit.DONE


def revision_lines(kept: Mapping[str, Any]) -> Iterator[str]:
    """Who applied what and when, and the plan that they saw."""
    revision, record = kept["revision"], kept["record"] or {}
    stands = "  stands" if kept["stands"] else ""
    commit = f"  commit {revision['commit']}" if revision["commit"] else ""
    yield safe(
        f"revision {revision['number']}  {revision['at'][:19]}Z  by {revision['who'] or '?'}{commit}{stands}"
    )
    if revision["message"]:
        yield f"  {safe(revision['message'])}"
    for guard, what in record.get("allowed", ()):
        yield f"  allowed: {safe(option(guard, what))}"
    yield ""
    if kept["plan"] is None:
        yield "Its plan is not kept."
        return
    plan: Plan = pydantic.TypeAdapter(Plan).validate_python(kept["plan"], strict=False)
    allowed = frozenset((guard, what) for guard, what in record.get("allowed", ()))
    yield from plan_lines(plan, allowed=allowed)


def _action_lines(record: Mapping[str, Any] | None) -> Iterator[str]:
    if record is None:
        yield "What its apply did was not recorded."
        return
    yield ""
    yield "What happened"
    table = [[f"  {each['at'][:19]}Z", safe(each["about"]), safe(each["said"])] for each in record["actions"]]
    yield from columns(table)
    if record["dropped"]:
        yield f"  and {record['dropped']} more"
    ended = f" at {record['ended'][:19]}Z" if record["ended"] else ""
    yield f"  {safe(record['result'] or 'it goes on')}{ended}"


def _file_lines(revision: Mapping[str, Any]) -> Iterator[str]:
    files = revision["files"]
    size = sum(len(text.encode()) for text in files.values())
    yield ""
    yield f"Catalog: {count(len(files), 'file')}, {show_bytes(size)}; to see them: --to DIR, or -o json"


def _write(files: Mapping[str, str], directory: pathlib.Path) -> None:
    """The files below `directory`, which must not have any of them yet. Raises Failed."""
    for name, text in files.items():
        inside = pathlib.PurePosixPath(name.lstrip("/"))
        if ".." in inside.parts:
            inside = pathlib.PurePosixPath(*(part for part in inside.parts if part != ".."))
        path = directory / inside
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(text.encode())
        except OSError as error:
            raise Failed(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
