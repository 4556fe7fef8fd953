"""The work of `llmgw status`: one answer of the control plane, as a screen."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.doing.hold import held_line
from llmgw.cli.watching import show
from llmgw.kit.text import count, safe
from llmgw.kit.units import show_seconds


def run(output: str, watch: bool, server: str | None) -> None:
    """Print the status."""
    client = Client(server)

    def look() -> str:
        status, marks = client.get("/v1/status"), client.get("/v1/marks")
        if output in ("json", "yaml"):
            return document("status", {**status, "marks": marks}, output, line=watch and output == "json")
        if output == "name":
            return safe(status["cluster"])
        return "\n".join(status_lines(status, marks, wide=output == "wide"))

    show(look, watch=watch, text=output in ("text", "wide"))


SILENT = ("Unheard", "Unreachable")
"""Standings of nodes whose engines may well serve."""


def status_lines(
    status: Mapping[str, Any], marks: Sequence[Mapping[str, Any]], *, wide: bool = False
) -> list[str]:
    """The one screen: what stands, what is wrong, what is waited for."""
    stands = f"revision {status['revision']}" if status["revision"] else "no revision yet: llmgw apply"
    commit = f" ({status['commit']})" if status["commit"] else ""
    by = f", by {status['who']} at {status['adopted'][:19]}Z" if status["revision"] else ""
    lines = [f"{status['cluster']}  {stands}{commit}{by}  epoch {status['epoch']}"]
    lines += [f"  {line}" for line in followed_lines(status["followed"])]
    if status.get("on_hold"):
        lines.append(f"  {held_line(status['on_hold'])}")
    lines += [
        f"  ALARM {alarm}" for alarm in (*status["alarms"], *([status["fenced"]] if status["fenced"] else []))
    ]
    nodes = collections.Counter(status["nodes"].values())
    late = {line.partition(":")[0] for line in status["outstanding"]}
    models = status["models"].items()
    ready = sum(model["ready"] >= model["wanted"] and name not in late for name, model in models)
    gateways = count(len(status["gateways"]), "gateway")
    lines.append(f"  models {ready}/{len(status['models'])} as wanted   nodes {_counted(nodes)}   {gateways}")
    if silent := sum(nodes[standing] for standing in SILENT):
        lines.append(
            f"  {count(silent, 'silent node')}: what serves there is not counted, and is asked by gateways as before"
        )
    lines += [f"  {line}" for line in map(mark_line, marks)]
    lines += [f"  waiting  {line}" for line in status["outstanding"]]
    if late - set(status["unplaced"]):
        lines.append("  what each waits for: llmgw why NAME")
    lines += [f"  unplaced {model}: see `llmgw why {model}`" for model in status["unplaced"]]
    if not status["outstanding"] and status["revision"]:
        whole = ready == len(models)
        paused = "nothing is waited for: what is not as wanted is paused"
        lines.append(f"  {'the fleet is what the catalog asks for' if whole else paused}")
    if wide:
        lines.append(
            f"  control plane of release {status['build']}; gateways: {', '.join(status['gateways'])}"
        )
    return [safe(line).rstrip() for line in lines]


def mark_line(mark: Mapping[str, Any]) -> str:
    """`paused phi-4 by dana for 2h, until …: driver upgrade`."""
    word = str(mark["kind"]).replace("_", " ")
    by = f" by {mark['who']}" if mark["who"] else ""
    until = f", until {mark['until'][:16]}Z" if mark["until"] else ""
    reason = f": {mark['reason']}" if mark["reason"] else ""
    return f"{word} {mark['name']}{by} for {show_seconds(mark['age'])}{until}{reason}"


def _counted(nodes: dict[str, int]) -> str:
    return ", ".join(f"{number} {standing}" for standing, number in sorted(nodes.items())) or "none yet"


def followed_lines(followed: Mapping[str, Any] | None) -> Iterator[str]:
    """What became of the catalog that is followed; nothing where none is."""
    if followed is None:
        return
    yield f"follows {followed['said']}, sync {followed['sync']}"
    if blind := followed["blind"]:
        yield f"HELD for {show_seconds(blind['age'])}: {blind['said']}; {blind['next']}"
    if hold := followed["hold"]:
        word = "PENDING" if hold["why"] == "pending" else "HELD"
        yield f"{word} {followed['tree']} for {show_seconds(hold['age'])}: {hold['said']}"
        yield from (f"  {detail}" for detail in hold["details"])
        yield f"  next: {hold['next']}"
    if followed["busy"]:
        yield f"waiting: {followed['busy']}"
    if dirty := followed["dirty"]:
        yield f"not committed, so not applied: {count(len(dirty), 'file')}, {dirty[0]}"
