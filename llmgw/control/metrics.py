"""What Prometheus sees of the control plane: from the very look that the screens take. Used by `serve`.

The only labels are names of the catalog, states and fixed words: no node and no client can mint a series.
"""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from llmgw.control.holding import MEANT
from llmgw.control.loop import Loop
from llmgw.kit.exposition import Family, Series, page
from llmgw.planning import screen
from llmgw.planning.view import View

OTHER = "other"
"""The model label of what runs and is in no catalog any more."""


def metrics(
    loop: Loop,
    epoch: int,
    revision: int,
    peers: Mapping[Any, int],
    followed: Mapping[str, Any] | None = None,
) -> bytes:
    """The page. `peers` are the streams that are open, by kind; `followed` is `Watch.report`, where one is."""
    return page("llmgw_control_", _families(loop, loop.view(), epoch, revision, peers, followed))


def _families(
    loop: Loop,
    view: View,
    epoch: int,
    revision: int,
    peers: Mapping[Any, int],
    followed: Mapping[str, Any] | None,
) -> Iterator[Family]:
    yield _gauge("epoch", "The epoch that commands.", epoch)
    yield _gauge("revision", "The catalog revision that stands; 0 = none.", revision)
    yield from _held(followed)
    yield _gauge("fenced", "1 = a newer control plane commands the nodes.", bool(loop.fenced))
    yield _gauge("alarms", "Alarms that stand.", len(loop.alarms))
    yield _gauge("outstanding", "What is not yet as the catalog asks.", len(screen.outstanding(view)))
    yield Family("peers", "gauge", "Agents and gateways that are connected.", _by(peers), ("kind",))
    nodes = collections.Counter(view.standings.values())
    yield Family("nodes", "gauge", "Nodes of the roster.", _by(nodes), ("state",))
    yield from _models(loop, view)
    yield Family("passes_total", "counter", "Times that it decided.", {(): loop.passes})
    yield Family("orders_total", "counter", "Actions dispatched.", _by(loop.ordered), ("action",))


def _held(followed: Mapping[str, Any] | None) -> Iterator[Family]:
    """Whether what is followed stands. The first is there from the first page on, so that an alert finds it."""
    hold, blind = (followed["hold"], followed["blind"]) if followed is not None else (None, None)
    ages: dict[tuple[str], float] = {}
    if hold is not None:
        ages[hold["why"],] = hold["age"]
    if blind is not None:
        ages["blind",] = blind["age"]
    held = any(why not in MEANT for (why,) in ages)
    yield _gauge(
        "catalog_held",
        "1 = the catalog that is followed is held or cannot be read: an older one stands.",
        held,
    )
    yield Family("catalog_held_seconds", "gauge", "How long what is followed has not stood.", ages, ("why",))


def _models(loop: Loop, view: View) -> Iterator[Family]:
    rows = screen.model_rows(view)
    known = {row.model for row in rows}
    yield Family(
        "ready", "gauge", "Replicas that serve.", {(row.model,): row.ready for row in rows}, ("model",)
    )
    wanted = {(row.model,): row.wanted for row in rows}
    yield Family("wanted", "gauge", "Replicas that the catalog asks for.", wanted, ("model",))
    replicas = collections.Counter(
        (replica.model if replica.model in known else OTHER, replica.phase)
        for replica in view.replicas.values()
    )
    yield Family("replicas", "gauge", "Replicas there are.", replicas, ("model", "phase"))
    unplaced = collections.Counter((item.model,) for item in loop.unplaced if item.model in known)
    yield Family("unplaced", "gauge", "Replicas that fit nowhere.", unplaced, ("model",))


def _gauge(name: str, said: str, value: float) -> Family:
    return Family(name, "gauge", said, {(): value})


def _by(values: Mapping[Any, int]) -> Series:
    return {(name,): value for name, value in values.items()}
