"""The work of `llmgw status`: one answer of the control plane, as a screen."""

import collections
import shlex
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


MOST = 8
"""Nodes and gateways that are away and are named."""


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
    lines += [f"  {line}" for line in _counts(status)]
    lines += [f"  {line}" for line in _away(status)]
    lines += [f"  {line}" for line in map(mark_line, marks)]
    lines += [f"  {line}" for line in _waiting(status)]
    if not status["outstanding"] and status["revision"]:
        lines.append(f"  {_at_rest(status)}")
    if wide:
        lines.append(
            f"  control plane of release {status['build']}; gateways: {', '.join(status['gateways'])}"
        )
    return [safe(line).rstrip() for line in lines]


def _counts(status: Mapping[str, Any]) -> Iterator[str]:
    """How many models serve as they should, whatever comes and goes beside it; nodes and gateways there are."""
    models = status["models"].values()
    ready = sum(model["ready"] >= model["wanted"] for model in models)
    doubtful = sum(
        model["ready"] >= model["wanted"] > model["ready"] - model.get("silent", 0) for model in models
    )
    silent = f" ({doubtful} by silent nodes)" if doubtful else ""
    nodes = _counted(collections.Counter(status["nodes"].values()))
    mute = len(status.get("silent_gateways", ()))
    gateways = count(len(status["gateways"]), "gateway") + (f", {mute} silent" if mute else "")
    yield f"models {ready}/{len(models)} as wanted{silent}   nodes {nodes}   {gateways}"


def _away(status: Mapping[str, Any]) -> Iterator[str]:
    """Who does not speak, for how long, and what that means."""
    nodes = status.get("away", ())
    for node in nodes[:MOST]:
        silent = f", silent for {show_seconds(node['seen'])}" if node["seen"] is not None else ""
        left = f", lost in {show_seconds(node['lost_in'])}" if node["lost_in"] is not None else ""
        yield f"{node['name']} {node['state']}{silent}{left}: {_MEANS[node['state']]}; next: llmgw why {shlex.quote(node['name'])}"
    if len(nodes) > MOST:
        yield f"and {count(len(nodes) - MOST, 'node')} more: llmgw nodes"
    gateways = list(status.get("silent_gateways", {}).items())
    for name, seen in gateways[:MOST]:
        yield f"gateway {name}, silent for {show_seconds(seen)}: clients are not served where it is down; next: llmgw why {shlex.quote(name)}"
    if len(gateways) > MOST:
        yield f"and {count(len(gateways) - MOST, 'gateway')} more: llmgw doctor"


_MEANS = {
    "Unreachable": "it gets nothing new, what serves there is asked as before",
    "Lost": "what ran there is rebuilt elsewhere",
    "Unheard": "it has not spoken since this control plane began",
}


def _waiting(status: Mapping[str, Any]) -> Iterator[str]:
    """What is waited for, each model with why under it, and where to ask."""
    reasons = status.get("reasons", {})
    untold = False
    told: set[str] = set()
    for line in status["outstanding"]:
        name = line.partition(":")[0]
        yield f"waiting  {line}"
        if name in reasons and name not in told:
            yield f"  {reasons[name]}; next: llmgw why {shlex.quote(name)}"
            told.add(name)
        untold |= name not in told and name not in status["unplaced"]
    if untold:
        yield "what each waits for: llmgw why NAME"
    yield from (
        f"unplaced {model}: see `llmgw why {model}`" for model in status["unplaced"] if model not in told
    )


def _at_rest(status: Mapping[str, Any]) -> str:
    """That nothing is waited for, and by which catalog, where that is not the newest or not everybody speaks."""
    if any(model["ready"] < model["wanted"] for model in status["models"].values()):
        return "nothing is waited for: what is not as wanted is paused"
    followed = status["followed"] or {}
    speak = ", on the nodes that speak" if status.get("away") else ""
    if hold := followed.get("hold"):
        word = "pending" if hold["why"] == "pending" else "held"
        return (
            f"the fleet is what revision {status['revision']} asks for{speak}; {followed['tree']} is {word}"
        )
    if followed.get("blind"):
        return f"the fleet is what revision {status['revision']} asks for{speak}; what is followed cannot be read"
    return f"the fleet is what the catalog asks for{speak}"


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
