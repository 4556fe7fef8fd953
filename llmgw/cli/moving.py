"""What moves while an apply goes on, and what of it was planned: lines of text. Pure; used by `following`."""

import collections
import datetime
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from llmgw.cli.screens import progress_text
from llmgw.kit.text import columns, safe
from llmgw.kit.units import show_seconds
from llmgw.planning.plan import Plan
from llmgw.planning.screen import ReplicaRow

MOST = 10
"""Lines of the region: it never fills a screen."""

MOVES = ".."
"""Before what moves; `mark` is before what has happened."""
_RESTS = ("Ready",)
_CLEAR = ("Ready", "Lost")
"""Standings of nodes that nothing more is expected of: each is there, or was given up."""
_ENDS = ("ready", "failed", "gone")
_ENDED_ITSELF = re.compile(r" gone: (exit \d|killed by |ended, exit )")
"""As `engines.base.how_it_ended` has it; what was stopped is gone for the reason of its stop."""
_ASSIGNED = "assign rank 0 "


class Estimates:
    """What a plan said that its creations take, in seconds from the beginning, first come first served."""

    def __init__(self, plan: Plan | None) -> None:
        self._waiting: dict[str, collections.deque[float]] = {}
        self._of: dict[str, float] = {}
        self._began: dict[str, datetime.datetime] = {}
        for row in plan.rows if plan is not None else ():
            if row.symbol != "-" and row.seconds is not None and row.nodes:
                self._waiting.setdefault(row.model, collections.deque()).append(row.seconds)

    def of(self, replica: str) -> float | None:
        """The estimate that this replica is held to; None where there is none."""
        model = replica.rpartition("/")[0]
        if replica not in self._of and self._waiting.get(model):
            self._of[replica] = self._waiting[model].popleft()
        return self._of.get(replica)

    def beside(self, entry: Mapping[str, Any]) -> str:
        """`  after 2m41s (planned 2m50s)` beside the event that ends a start, both from when it was given its place.

        Every event is shown here, in order; nothing where its beginning was not.
        """
        about, said = str(entry["about"]), str(entry["said"])
        if entry["kind"] == "action" and said.startswith(_ASSIGNED):
            self._began.setdefault(about, datetime.datetime.fromisoformat(entry["at"]))
        began = self._began.get(about)
        if said != "rank 0 ready" or began is None or not (planned := self.of(about)):
            return ""
        took = (datetime.datetime.fromisoformat(entry["at"]) - began).total_seconds()
        return f"  after {show_seconds(max(0.0, took))} (planned {show_seconds(planned)})"


def moving(rows: Iterable[ReplicaRow], estimates: Estimates) -> list[str]:
    """The replicas that are on their way, at most `MOST` lines."""
    found = [row for row in rows if row.state not in _RESTS]
    table = [[safe(row.replica), safe(row.state), _where(row), _said(row, estimates)] for row in found[:MOST]]
    lines = [f"  {MOVES:4}  {line}" for line in columns(table)]
    return [*lines, f"        and {len(found) - MOST} more"] if len(found) > MOST else lines


def at_rest(rows: Collection[ReplicaRow], models: Collection[str]) -> bool:
    """Whether something waits for a place and nothing moves that could make one: no start, no stop, no return.

    A start of another model that is tried again makes no room; one of `models` is what is waited for.
    """
    waits = [row.model for row in rows if row.state == "Pending" and not row.nodes]
    rests = (*_RESTS, "Paused", "Lost")
    others = (row for row in rows if row.nodes or row.state != "Pending")
    return bool(waits) and all(
        row.state in rests or (row.state == "Backoff" and row.model not in models) for row in others
    )


def without_place(status: Mapping[str, Any], models: Collection[str]) -> bool:
    """Whether each of `models` fits on no node, where all nodes that are expected have had their say."""
    standings = status["nodes"].values()
    heard = "Ready" in standings and all(each in _CLEAR for each in standings)
    return heard and not status["fenced"] and set(models) <= set(status["unplaced"])


def _where(row: ReplicaRow) -> str:
    return safe(",".join(row.nodes[:2])) + (" …" if len(row.nodes) > 2 else "") if row.nodes else "-"


def _said(row: ReplicaRow, estimates: Estimates) -> str:
    said = progress_text(row) if row.progress is not None else safe(row.detail)
    planned = estimates.of(row.replica) if row.state in ("Fetching", "Starting") else None
    about = f"{show_seconds(row.age)}, about {show_seconds(planned)} planned in all" if planned else ""
    return "  ".join(filter(None, (said, about)))


def mark(entry: Mapping[str, Any], failed: Collection[str] = ()) -> str:
    """`ok` before an event that ends something well, `FAIL` before a failure, else nothing.

    That a replica is gone which has `failed`, or whose process ended by itself, is no good end of it.
    """
    state = _state(entry)
    if state == "failed":
        return "FAIL"
    ended = entry["about"] in failed or _ENDED_ITSELF.search(entry["said"])
    return "ok" if state in _ENDS and not ended else ""


def worth_a_line(entry: Mapping[str, Any]) -> bool:
    """Whether an event ends something: beside a region that shows what moves, the others say it twice."""
    return _state(entry) in _ENDS if entry["kind"] == "shard" else entry["kind"] != "action"


def failure_hint(entry: Mapping[str, Any]) -> str:
    """What to run after a failure; nothing where the event is none."""
    if _state(entry) != "failed":
        return ""
    replica = str(entry["about"])
    return f"it is tried again. Logs: llmgw logs {replica}   Why: llmgw why {replica.rpartition('/')[0]}"


def _state(entry: Mapping[str, Any]) -> str:
    """`gone` of `rank 0 gone: its successor is ready`: words of the reason are no state; empty of other events."""
    if entry["kind"] != "shard":
        return ""
    return str(entry["said"]).partition(":")[0].rpartition(" ")[2]
