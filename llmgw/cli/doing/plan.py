"""The work of `llmgw plan`: read a catalog, let it be rehearsed, print what was asked for."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import click
import pydantic

from llmgw.cli import names, output
from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.options import naming
from llmgw.cli.uploads import Upload, read_upload
from llmgw.errors import Failed
from llmgw.fleet.node import NodeInfo
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import safe
from llmgw.planning.asking import Asked
from llmgw.planning.fired import options
from llmgw.planning.markdown import comment
from llmgw.planning.plan import Plan
from llmgw.planning.render import counts, plan_lines, summary_lines


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Which catalog is planned, against what. Empty texts stand for what was not given."""

    path: pathlib.Path
    ref: str = ""
    base: str = ""
    fleet: pathlib.Path | None = None
    server: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Supposed:
    """What is only supposed, and what is shown of it, as it was written."""

    only: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    with_: tuple[pathlib.Path, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """How it is printed, where else it is written, how deep it goes."""

    output: str = "text"
    also: tuple[tuple[str, pathlib.Path], ...] = ()
    summary: bool = False
    explain: bool = False
    save: pathlib.Path | None = None


def run(
    source: Source, supposed: Supposed, shown: Shown, fail_on: Sequence[str], *, detailed_exitcode: bool
) -> int:
    """Print the plan; returns the exit code."""
    upload, base = _read(source)
    nodes = _nodes(supposed.with_) if supposed.with_ else ()
    asked = Asked(supposed.only, supposed.replace, supposed.without, nodes)
    plan = _planned(source, upload, base, asked)
    if shown.explain:
        plan = _with_authors(plan, upload, source)
    for form, path in shown.also:
        _write(path, _text(plan, form, shown, upload, source.path) + "\n")
    if shown.save is not None:
        from llmgw.cli.saved import save

        save(shown.save, plan, upload)
    if shown.output == "text":
        output.say(_text(plan, "text", shown, upload, source.path, output.width()).splitlines())
        _next(plan, source)
    else:
        click.echo(_text(plan, shown.output, shown, upload, source.path))
    return _exit(plan, upload, fail_on, detailed_exitcode=detailed_exitcode)


def _nodes(paths: Sequence[pathlib.Path]) -> tuple[NodeInfo, ...]:
    from llmgw.cli.nodefile import read_node

    return tuple(map(read_node, paths))


def _read(source: Source) -> tuple[Upload, dict[str, str] | None]:
    """What is planned, and the files of the base. Git is asked, and imported, only where it is needed."""
    if not (source.base or source.ref):
        return read_upload(source.path, "plan"), None
    from llmgw.cli import revisions

    if source.base:
        found = revisions.read_merged(source.path, source.ref or "HEAD", source.base)
        return found.upload, dict(found.base) if found.base is not None else None
    return revisions.read_ref(source.path, source.ref), None


def _planned(source: Source, upload: Upload, base: dict[str, str] | None, asked: Asked) -> Plan:
    if source.fleet is not None:
        # The control plane's own parts: a plan that asks it does without them.
        from llmgw.cli.offline import plan_offline

        plan = plan_offline(source.fleet, upload.catalog, base, asked)
    else:
        body = upload.body(
            base=base,
            only=asked.only,
            replace=asked.replace,
            without_nodes=asked.without_nodes,
            with_nodes=pydantic.TypeAdapter(tuple[NodeInfo, ...]).dump_python(asked.with_nodes, mode="json"),
        )
        client = Client(source.server)
        plan = client.ask(Plan, "/v1/plan", body)
        if not (asked.replace or asked.without_nodes or asked.with_nodes):  # nobody applies such a one
            names.saw_plan(client.server, plan.id)
    read = upload.read if upload.commit else f"{plan.catalog_digest[:12]} ({upload.read})"
    return dataclasses.replace(plan, catalog=read)


def _with_authors(plan: Plan, upload: Upload, source: Source) -> Plan:
    """The plan with who wrote the lines that cause it, as far as git knows."""
    from llmgw.cli import revisions

    ref = upload.commit if source.ref or source.base else ""
    places = [row.place for row in plan.rows if row.place]
    known = revisions.blame(places, upload.files, source.path, ref, SystemClock().wall())
    rows = tuple(dataclasses.replace(row, blame=known.get(row.place, "")) for row in plan.rows)
    return dataclasses.replace(plan, rows=rows)


def _text(
    plan: Plan, form: str, shown: Shown, upload: Upload, path: pathlib.Path, width: int | None = None
) -> str:
    if form == "json":
        return plan_json(plan)
    if form == "markdown":
        return comment(plan, head=upload.commit, apply=naming("apply", path))
    if shown.summary:
        return "\n".join(summary_lines(plan, width=width))
    apply = naming("apply", path)
    return "\n".join(plan_lines(plan, explain=shown.explain, width=width, apply=apply))


def _write(path: pathlib.Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from error


def _next(plan: Plan, source: Source) -> None:
    if not plan.suppose and plan.rows and all(row.origin == "healing" for row in plan.rows):
        click.echo("Nothing to apply: the control plane does this by itself.", err=True)
    elif not plan.empty and not plan.suppose and source.fleet is None and not source.base:
        way = f"{naming('apply', source.path)} --expect {plan.id} {options(plan.guards)}".rstrip()
        where = f", where {safe(source.ref)} is checked out" if source.ref else ""
        click.echo(f"Next: {safe(way)}{where}", err=True)


def _exit(plan: Plan, upload: Upload, fail_on: Sequence[str], *, detailed_exitcode: bool) -> int:
    holds = {
        "outage": any(each.now and not each.lowest for each in plan.service),
        "unplaced": bool(plan.unplaced),
        "stop": any(row.symbol in ("-", "-/+") for row in plan.rows),
        "guard": bool(plan.guards),
        "dirty": bool(upload.dirty),
        "unreachable": bool(plan.unreachable),
    }
    found = [word for word in fail_on if holds[word]]
    if found:
        click.echo(f"fails on: {', '.join(found)}", err=True)
        return Exit.FAIL_ON
    return Exit.CHANGES if detailed_exitcode and not plan.empty else Exit.DONE


def plan_json(plan: Plan) -> str:
    """The plan as one JSON document, with its kind and version."""
    return json.dumps(plan_document(plan), indent=2)


def plan_document(plan: Plan) -> dict[str, Any]:
    """That document as a value."""
    dumped = pydantic.TypeAdapter(Plan).dump_python(plan, mode="json")
    return {
        "kind": "llmgw.plan",
        "format_version": "1.0",
        "id": plan.id,
        **dumped,
        "summary": counts(plan),
    }
