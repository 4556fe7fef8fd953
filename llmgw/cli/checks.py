"""What `llmgw doctor` makes of the control plane's facts: one finding a rule, with what would help. Pure.

Rules stand in a list; each gives findings, or that there is nothing to say against it.
"""

import dataclasses
import datetime
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from llmgw.control.holding import MEANT
from llmgw.kit.text import count
from llmgw.kit.units import show_bytes, show_seconds

LEAST_ROOM = 1 << 30
"""Bytes of the state directory's disk below which revisions and the roster are in danger."""

MOST_SKEW = 5.0
"""Seconds between this machine's clock and the control plane's that mislead whoever reads times."""

MOST_APART = 2.0
"""Seconds between the control plane's clock and a peer's that are still one time to whoever reads both logs."""

MOST_SHOWN = 10
Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what would help."""

    grade: Literal["ok", "warning", "wrong"]
    what: str
    said: str
    help: str = ""


def findings(facts: Facts, *, ours: str, wall: datetime.datetime, took: float, server: str) -> list[Finding]:
    """Every finding. `ours` is this command's release, `wall` its time when the answer was made, `took` seconds."""
    found = [_reached(facts, took, server), _release_of_ours(facts, ours), _clock(facts, wall)]
    for what, rule in RULES:
        against = list(rule(facts))
        found += against or [Finding("ok", what, _FINE[what])]
    return found


def _reached(facts: Facts, took: float, server: str) -> Finding:
    if facts["fenced"]:
        return Finding("wrong", "control plane", str(facts["fenced"]), "stop one of the two")
    return Finding(
        "ok",
        "control plane",
        f"{facts['cluster']} at {server}, release {facts['build']}, answers in {show_seconds(took)}",
    )


def _release_of_ours(facts: Facts, ours: str) -> Finding:
    if ours == facts["build"]:
        return Finding("ok", "this command", f"release {ours}")
    said = f"release {ours}, the control plane is {facts['build']}"
    return Finding("warning", "this command", said, "install the same release")


def _clock(facts: Facts, wall: datetime.datetime) -> Finding:
    skew = (datetime.datetime.fromisoformat(facts["wall"]) - wall).total_seconds()
    if abs(skew) <= MOST_SKEW:
        return Finding("ok", "clock", "the control plane's agrees with this machine's")
    ahead = "ahead of" if skew > 0 else "behind"
    said = f"the control plane's is {show_seconds(abs(skew))} {ahead} this machine's: times of events mislead"
    return Finding("warning", "clock", said, "synchronise both, with chrony say; no decision depends on it")


def _releases(facts: Facts) -> Iterator[Finding]:
    plane = facts["build"]
    for kind in ("agents", "gateways"):
        others = [each for each in facts[kind] if each["build"] not in ("", plane)]
        if others:
            names = _names(f"{each['name']} {each['build']}" for each in others)
            said = f"{count(len(others), kind[:-1])} of another release than {plane}: {names}"
            yield Finding(
                "warning", "releases", said, "upgrade them one after the other: engines go on meanwhile"
            )


def _clocks(facts: Facts) -> Iterator[Finding]:
    """Beyond what the way of the answer can hide; of who did not say, nothing is said."""
    asked = facts["clocks"]
    if not asked:
        nobody = "nobody is connected whose clock could be asked"
        said = nobody if asked is not None else "the control plane did not tell what they show"
        yield Finding("ok", "clocks", said)
        return
    told = [each for each in asked if each["ahead"] is not None]
    apart = [each for each in told if abs(each["ahead"]) - each["within"] >= MOST_APART]
    if not apart:
        said = f"{len(told)} of {count(len(asked), 'peer')} told theirs, the control plane's agrees"
        yield Finding("ok", "clocks", said if told else "no agent or gateway told what its own shows")
        return
    names = _names(f"{each['name']} {_apart(each['ahead'])}" for each in apart)
    verb = "differs" if len(apart) == 1 else "differ"
    said = f"{len(apart)} of {count(len(told), 'clock')} {verb} from the control plane's: {names}"
    alone = len(apart) == len(told) > 1
    where = "the control plane's machine, or all others" if alone else "them"
    help_ = (
        f"synchronise {where}, with chrony say: times in logs mislead, tokens and certificates may be refused"
    )
    yield Finding("warning", "clocks", said, help_)


def _apart(ahead: float) -> str:
    return f"{show_seconds(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"


def _catalog(facts: Facts) -> Iterator[Finding]:
    followed = facts["followed"]
    if not facts["revision"]:
        yield Finding("wrong", "catalog", "no catalog is adopted: nothing is served", "llmgw apply")
    elif not facts["loads"]:
        said = f"revision {facts['revision']} does not load with this release: nothing is started or stopped"
        yield Finding("wrong", "catalog", said, "llmgw validate, then llmgw apply")
    if followed and followed["blind"]:
        yield Finding(
            "wrong",
            "catalog",
            f"{followed['said']}: {followed['blind']['said']}",
            followed["blind"]["next"],
        )
    if followed and (hold := followed["hold"]):
        grade: Literal["warning", "wrong"] = "warning" if hold["why"] in MEANT else "wrong"
        said = f"{followed['tree']} is held for {show_seconds(hold['age'])}: {hold['said']}"
        yield Finding(grade, "catalog", said, hold["next"])


def _nodes(facts: Facts) -> Iterator[Finding]:
    nodes = facts["nodes"]
    if not nodes:
        yield Finding(
            "wrong", "nodes", "no node has registered", "llmgw agent --control HOST:PORT on each machine"
        )
    if said := facts.get("files"):
        yield Finding(
            "wrong", "nodes", said, "LimitNOFILE= in the control plane's unit, or ulimit -n, then restart it"
        )
    for node in nodes:
        if node["state"] != "Ready":
            spoke = f", it spoke {show_seconds(node['seen'])} ago" if node["seen"] is not None else ""
            quoted = shlex.quote(node["name"])
            forget = f", then llmgw node forget {quoted}" if node["state"] == "Lost" else ""
            yield Finding(
                "wrong", "nodes", f"{node['name']} is {node['state']}{spoke}",
                f"systemctl status llmgw-agent on that machine; machine gone: llmgw node confirm-lost {quoted}{forget}",
            )  # fmt: skip
        for warning in node["warnings"]:
            yield Finding("warning", "nodes", f"{node['name']}: {warning}")


def _cards(facts: Facts) -> Iterator[Finding]:
    for card in facts["cards"]:
        said = f"{card['node']}: {card['gpu']} is withdrawn: {card['said'] or 'not healthy'}"
        yield Finding("wrong", "cards", said, "nvidia-smi on the node; it takes nothing until it is well")


def _engines(facts: Facts) -> Iterator[Finding]:
    for each in facts["engines"]:
        said = f"profile {each['profile']} needs {each['engine']}, which no node has"
        yield Finding(
            "wrong",
            "engines",
            said,
            f"install {each['engine']} on a node, or name it: llmgw agent --engine {each['engine']}=PATH",
        )


def _gateways(facts: Facts) -> Iterator[Finding]:
    if not facts["gateways"]:
        yield Finding(
            "warning",
            "gateways",
            "none is connected: clients reach nothing",
            "llmgw gateway --control HOST:PORT",
        )
    for gateway in facts["gateways"]:
        if gateway["seen"] >= facts["silent_after"]:
            silence = show_seconds(gateway["seen"])
            said = (
                f"{gateway['name']} is silent for {silence}: its clients are not served where it is down, and "
                "drains wait for their limit"
            )
            look = (
                "systemctl status llmgw-gateway on its machine, and its log; end it if it is not meant to run"
            )
            yield Finding("wrong", "gateways", said, look)


def _models(facts: Facts) -> Iterator[Finding]:
    for each in facts["failing"]:
        what = each.get("said") or f"failed to start {count(each['failures'], 'time')}"
        said = f"{each['model']} {what}: {each['reason']}"
        yield Finding("wrong", "models", said, f"llmgw why {each['model']}")
    for model in facts["unplaced"]:
        yield Finding("wrong", "models", f"{model} finds no place", f"llmgw why {model}")
    for each in facts.get("recovered", ()):
        ago = show_seconds(each["ago"])
        said = f"{each['model']} serves as it should again; {ago} ago it {each['said']}: {each['reason']}"
        yield Finding("ok", "models", said)


def _disk(facts: Facts) -> Iterator[Finding]:
    disk = facts["disk"]
    if disk is not None and disk["free"] < LEAST_ROOM:
        said = f"{show_bytes(disk['free'])} free at {facts['state_dir']}: revisions and the roster need room"
        yield Finding("wrong", "disk", said, "make room there")


def _alarms(facts: Facts) -> Iterator[Finding]:
    for alarm in facts["alarms"]:
        yield Finding("wrong", "alarms", str(alarm), "llmgw events --kind alarm")


RULES: tuple[tuple[str, Callable[[Facts], Iterator[Finding]]], ...] = (
    ("releases", _releases),
    ("clocks", _clocks),
    ("catalog", _catalog),
    ("nodes", _nodes),
    ("cards", _cards),
    ("engines", _engines),
    ("gateways", _gateways),
    ("models", _models),
    ("disk", _disk),
    ("alarms", _alarms),
)
_FINE: Mapping[str, str] = {
    "releases": "every agent and gateway is of the control plane's",
    "catalog": "adopted, and nothing is held",
    "nodes": "all are there",
    "cards": "none is withdrawn",
    "engines": "each profile in use finds its engine",
    "gateways": "all speak",
    "models": "none fails, each has its place",
    "disk": "there is room for the control plane's files",
    "alarms": "none",
}


def _names(names: Iterator[str]) -> str:
    known = list(names)
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return ", ".join(known[:MOST_SHOWN]) + more
