"""The work of `llmgw gc`: list, ask, hand the list over, say what came of it."""

import click
import pydantic

from llmgw.cli.asking import agree
from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.exits import Exit
from llmgw.cli.screens import listing_lines
from llmgw.kit.text import count, safe
from llmgw.kit.units import show_bytes
from llmgw.planning.gc import Listing
from llmgw.planning.screen import NodeRow


def run(collect: bool, expect: str, yes: bool, output: str, server: str | None) -> int:
    """List or collect; returns the exit code."""
    client = Client(server)
    found: Listing = client.read(Listing, "/v1/gc")
    rows: tuple[NodeRow, ...] = client.read(tuple[NodeRow, ...], "/v1/nodes")
    names = {row.id: row.name for row in rows}
    if output != "text" and not collect:
        dumped = pydantic.TypeAdapter(Listing).dump_python(found, mode="json")
        items = dumped.pop("candidates")
        click.echo(document("gc", {"id": found.id, "items": items, **dumped}, output))
        return Exit.DONE
    if output == "text":
        for line in listing_lines(found, names):
            click.echo(line)
    if not collect:
        if found.candidates:
            click.echo(
                f"Nothing was deleted. To delete exactly these: llmgw gc --collect --expect {found.id}",
                err=True,
            )
        return Exit.DONE
    if not found.candidates and not expect:
        if output != "text":
            click.echo(document("collected", {"items": []}, output))
        return Exit.DONE
    _agree(found, expect, yes)
    return _collect(client, expect or found.id, names, output)


def _agree(found: Listing, expect: str, yes: bool) -> None:
    if expect or yes:
        return
    question = f"Delete {count(len(found.candidates), 'item')}, {show_bytes(found.size)}?"
    agree(question, unchanged="Nothing was removed", way=f"llmgw gc --collect --expect {found.id}")


def _collect(client: Client, listing_id: str, names: dict[str, str], output: str) -> int:
    answer = client.post("/v1/gc", {"expect": listing_id})
    if output != "text":
        click.echo(document("collected", {"items": answer["nodes"]}, output))
    removed = freed = asked = 0
    for node in answer["nodes"]:
        gone = [entry for entry in node["entries"] if entry["removed"]]
        refused = [entry for entry in node["entries"] if not entry["removed"]]
        asked, removed = asked + node["asked"], removed + len(gone)
        freed += sum(entry["freed"] for entry in gone)
        if output == "text":
            name = safe(names.get(node["node"], node["node"]))
            click.echo(
                f"{name}  asked to remove {node['asked']}, removed {len(gone)}, refused {len(refused)}"
            )
            if node["said"]:
                click.echo(f"  {safe(node['said'])}")
            for entry in refused:
                click.echo(f"  refused {entry['cache_name'][:12]}: {safe(entry['said'])}")
    if output == "text":
        click.echo(f"Asked to remove {asked}; nodes removed {removed} ({show_bytes(freed)}).")
    return Exit.FAILED if any(node["said"] for node in answer["nodes"]) else Exit.DONE
