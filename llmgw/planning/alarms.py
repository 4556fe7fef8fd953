"""What people have to know or do: the loop journals each when it begins, `llmgw status` and plans show them.

A step of `reconcile`. What a sentence says changes only with what it is about: it counts no seconds.
"""

import math
from collections.abc import Collection

from llmgw.fleet.world import Fleet
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.ledger import Trouble
from llmgw.planning.reasons import halts
from llmgw.planning.scaling import wanted
from llmgw.planning.view import View

MOST = 8
"""Names in one sentence."""


def alarms(view: View) -> tuple[str, ...]:
    """Every alarm of this instant."""
    return (*_silences(view), *_lost(view), *_doors(view), *_halted(view))


def _silences(view: View) -> list[str]:
    """What cannot be heard, and what is left undone because of it."""
    standings = view.board.standings
    if standings is None:
        return []
    said: list[str] = []
    if view.dark:
        silent, of = len(standings.silent), len(view.standings)
        said.append(
            f"{silent} of {of} nodes fell silent together: nothing is stopped or placed until they speak, gateways on "
            f"other machines than this one cannot connect to what serves there either, or somebody says so ({_LOST})"
        )
    elif nodes := [name for name in standings.silent if view.board.works(name)]:
        said.append(
            f"no word from {_names(view.fleet, nodes)}: what runs there is left alone, and rebuilt elsewhere "
            f"after {show_seconds(view.timers.lost)} of silence ({_LOST})"
        )
    if view.unheard:
        nodes = list(view.unheard)
        said.append(
            f"waiting for {count(len(nodes), 'node')} of the roster: {_names(view.fleet, nodes)}; "
            f"{_undone(view)} ({_LOST}, then `llmgw node forget NAME` where it does not come back)"
        )
    return said


_LOST = "`llmgw node confirm-lost NAME` where one is gone"


def _lost(view: View) -> list[str]:
    """Nodes that were given up with what ran there; of one that somebody confirmed, its mark tells."""
    confirmed = view.desired.marks.confirmed_lost
    nodes = [name for name in view.lost if name not in confirmed and view.board.works(name)]
    if not nodes:
        return []
    is_, there = ("is", "there") if len(nodes) == 1 else ("are", "on them")
    return [
        f"{_names(view.fleet, nodes)} {is_} lost: what ran {there} is rebuilt elsewhere where it fits. Bring the agent "
        "back (`systemctl status llmgw-agent` there); machine gone: `llmgw node confirm-lost NAME`, then "
        "`llmgw node forget NAME`"
    ]


def _doors(view: View) -> list[str]:
    """Gateways that do not speak: they may serve by their last table, or be dead with their clients outside."""
    silent = sorted(name for name in view.fleet.gateways if view.silent(name))
    if not silent:
        return []
    more = f" and {len(silent) - MOST} more" if len(silent) > MOST else ""
    word, its = ("gateway", "its") if len(silent) == 1 else ("gateways", "their")
    return [
        f"no word from {word} {', '.join(silent[:MOST])}{more}: {its} clients are not served where that is down, and "
        "drains wait for their limit (`llmgw why NAME`)"
    ]


def _undone(view: View) -> str:
    """What waits for nodes that have not reported since this control plane began, and how long at most."""
    limit = view.timers.lost_grace if view.heard else view.timers.place_grace
    within = "" if math.isinf(limit) else f" or it is {show_seconds(limit)} since this control plane began"
    what = "no model that serves gets more replicas" if view.heard else "nothing is placed or stopped"
    return f"{what} until they report{within}"


def _names(fleet: Fleet, nodes: Collection[str]) -> str:
    names = sorted(fleet.name(node) for node in nodes)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _halted(view: View) -> list[str]:
    """Roll-outs whose new generation fails to start, each with what serves meanwhile and what helps.

    What ended after it had proved itself, or moves from one node to another, is no roll-out.
    """
    wants = view.board.wants
    if wants is None or not view.ledger.troubles:
        return []
    said: list[str] = []
    for (model, generation), trouble in sorted(view.ledger.troubles.items()):
        want, marks = wants.models.get(model), view.desired.marks
        if want is None or generation not in want.generations or model in marks.paused:
            continue
        if trouble.served >= view.timers.min_ready:
            continue
        gap = view.ledger.gap is not None and view.ledger.gap.model == model
        if gap or halts(view, model, generation, trouble):
            of = sum(r.serves and r.id not in view.ledger.drains for r in view.of_model(model))
            said.append(_halt(model, generation, trouble, of, wanted(view, want.model), gap=gap))
    return said


def _halt(model: str, generation: str, trouble: Trouble, serve: int, of: int, *, gap: bool) -> str:
    lasts = "one of before gave its place up" if gap else "what served before goes on"
    waits = "; no other model is replaced without room for both meanwhile" if gap else ""
    fails = "does not stay ready" if trouble.served else "fails to start"
    return (
        f"the roll-out of {model} is halted: generation {generation[:6]} {fails} ({trouble.reason}); "
        f"{serve} of {of} serve, {lasts}{waits}. It is tried again by back-off: `llmgw retry {model}` tries "
        "at once, `llmgw rollback` goes back to the catalog before"
    )
