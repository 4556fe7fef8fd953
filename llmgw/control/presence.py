"""What happens to nodes by silence alone, for people: when each became Unreachable or Lost, and that it is back.

The loop lets it look at every decision's standings; what changed since the last look is journaled.
"""

from collections.abc import Collection, Mapping

from llmgw.control.journal import Journal
from llmgw.fleet.expiry import Standing
from llmgw.fleet.world import Fleet
from llmgw.kit.units import show_seconds


class Presence:
    """What every node was in the last look, and since when those that are away have been silent."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._was: Mapping[str, Standing] = {}
        self._silent_since: dict[str, float] = {}

    def look(
        self, standings: Mapping[str, Standing], fleet: Fleet, confirmed: Collection[str], now: float
    ) -> None:
        """Journal what is new. `confirmed` are the nodes that somebody calls lost."""
        was, self._was = self._was, standings
        if standings is was or standings == was:
            return
        for node, stands in standings.items():
            if stands == was.get(node, "Ready"):
                continue
            if said := self._said(node, stands, fleet, node in confirmed, now):
                self._journal.note("node", fleet.name(node), said)
        self._silent_since = {name: at for name, at in self._silent_since.items() if name in standings}

    def _said(self, node: str, stands: Standing, fleet: Fleet, confirmed: bool, now: float) -> str:
        known = fleet.nodes.get(node)
        if stands == "Ready":
            since = self._silent_since.pop(node, None)
            return f"Ready again after {show_seconds(now - since)} of silence" if since is not None else ""
        if known is None:
            unheard = "Lost: it has not spoken since this control plane began"
            return unheard if stands == "Lost" else ""
        since = self._silent_since.setdefault(node, known.last_seen)
        silence = f"silent for {show_seconds(now - since)}"
        if stands == "Unreachable":
            return f"Unreachable: {silence}; it gets nothing new, what serves there is asked as before"
        because = f"somebody confirmed it, {silence}" if confirmed else silence
        return f"Lost: {because}; what ran there is rebuilt elsewhere"
