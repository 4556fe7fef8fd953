"""What a plan leaves as it is on purpose, with the reason: paused models, replicas on nodes that are silent.

Called by `planning.plan` with the look that its rehearsal began with.
"""

from collections.abc import Iterator

from llmgw.kit.units import show_seconds
from llmgw.planning.rows import Row
from llmgw.planning.view import View


def left_alone(view: View) -> tuple[Row, ...]:
    """One row a paused model and one a replica whose node does not answer; nothing is done about them now."""
    return (*_paused(view), *_silent(view))


def _paused(view: View) -> Iterator[Row]:
    models = view.desired.catalog.models if view.desired.catalog is not None else {}
    for name, reason in sorted(view.desired.marks.paused.items()):
        if name in models:
            yield Row(".", name, "paused", f"paused: {reason}", origin="healing")


def _silent(view: View) -> Iterator[Row]:
    for name, replica in sorted(view.replicas.items()):
        if replica.phase != "Unreachable":
            continue
        silent = [peer.node for peer in replica.spec.peers if view.standings.get(peer.node) == "Unreachable"]
        if not silent:
            continue
        node = silent[0]
        silence = view.now - view.fleet.nodes[node].last_seen
        left = "while most nodes are silent" if view.dark else _lost_in(view.timers.lost - silence)
        yield Row(
            ".",
            replica.model,
            "unreachable",
            f"{view.fleet.name(node)} is silent for {show_seconds(silence)}; {left}",
            origin="healing",
            replica=name,
            nodes=tuple(view.fleet.name(peer.node) for peer in replica.spec.peers),
        )


def _lost_in(seconds: float) -> str:
    return f"rebuilt elsewhere if it stays so for {show_seconds(max(0.0, seconds))} more"
