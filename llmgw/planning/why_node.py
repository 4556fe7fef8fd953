"""Why a node is what it is: whether it takes anything new, what runs there, what does not fit on it.

The API answers `llmgw why NODE` with it. Pure, from one `View`.
"""

import shlex
from collections.abc import Iterable, Iterator

from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.needs import Unplaced
from llmgw.planning.placement import Site
from llmgw.planning.sharing import shared_ports
from llmgw.planning.view import View
from llmgw.planning.why import Why, state_of, stops_all

LOOK = "systemctl status llmgw-agent on that machine"


def why_node(view: View, unplaced: Iterable[Unplaced], node: str) -> Why:
    """Why a node of the roster is what it is, what runs there, and what does not fit on it."""
    name, standing = view.fleet.name(node), view.standings[node]
    known, site = view.fleet.nodes.get(node), view.board.stock.sites.get(node)
    if known is None or site is None:
        said = "it has not spoken since this control plane started; a restart waits for it"
        look = f"{LOOK}; machine gone: llmgw node forget {shlex.quote(name)}"
        return Why("node", name, standing, (said, *stops_all(view)), try_next=look)
    silence = max(0.0, view.now - known.last_seen)
    here = sorted({shard.spec.replica for shard in view.fleet.on_node(node)})
    lines = [
        f"spoke {show_seconds(silence)} ago" + ("" if known.connected else ", its connection has ended"),
        *stops_all(view),
        *_standing(view, node, silence),
        *_taken(view, node, here),
        *_cards(site),
        *known.info.warnings,
        *shared_ports(view).get(node, ()),
        *(f"runs {each}, {state_of(view, view.replicas[each])}" for each in here),
        *(
            f"does not take {item.model}: {reason.said}"
            for item in unplaced
            for reason in item.reasons
            if reason.node == name
        ),
    ]
    return Why("node", name, standing, tuple(lines), try_next=_next_of_node(view, node, name))


def _standing(view: View, node: str, silence: float) -> Iterator[str]:
    if node in view.desired.marks.confirmed_lost:
        yield "somebody confirmed that it is lost; it ends when it speaks"
    elif view.standings[node] == "Unreachable" and not view.dark:
        yield f"lost in {show_seconds(max(0.0, view.timers.lost - silence))} if it stays silent; nothing new is placed"
    elif view.standings[node] == "Lost":
        yield f"lost for {show_seconds(max(0.0, silence - view.timers.lost))}: what ran there is rebuilt elsewhere"


def _taken(view: View, node: str, here: list[str]) -> Iterator[str]:
    """Whether it takes anything new."""
    marks = view.desired.marks
    if node in marks.draining:
        yield f"draining: {marks.draining[node]}"
        yield (
            f"{count(len(here), 'replica')} left, each goes once its successor is ready" if here else "empty"
        )
    elif node in marks.cordoned:
        yield f"cordoned: {marks.cordoned[node]}"
    elif node in view.board.cordoned:
        yield f"quarantined: {view.board.cordoned[node]}"


def _cards(site: Site) -> Iterator[str]:
    for gpu in site.room.info.gpus or ():
        if not gpu.healthy:
            yield f"GPU {gpu.uuid} is withdrawn: {gpu.said or 'not healthy'}"
        elif theirs := gpu.strangers:
            yield f"GPU {gpu.uuid}: {theirs}; counted as used"


def _next_of_node(view: View, node: str, name: str) -> str:
    marks, quoted = view.desired.marks, shlex.quote(name)
    if view.standings[node] == "Lost":
        forget = f"llmgw node forget {quoted}"
        confirm = "" if node in marks.confirmed_lost else f"llmgw node confirm-lost {quoted}, then "
        return f"{LOOK}; machine gone: {confirm}{forget}"
    if view.standings[node] != "Ready":
        return f"{LOOK}; machine gone: llmgw node confirm-lost {quoted}"
    return f"llmgw node uncordon {name}" if node in marks.draining or node in marks.cordoned else ""
