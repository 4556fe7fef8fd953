"""What follows from nodes that are only supposed away, told as that. Used by `asking`.

To the rehearsal such nodes never were: what ran there is missing without a reason that people would know.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from llmgw.fleet.world import Fleet
from llmgw.planning.plan import NotPlaced, Plan
from llmgw.planning.rows import Row


@dataclasses.dataclass(frozen=True, slots=True)
class _Gone:
    """A replica that has a rank on such a node; `node` is what people call that."""

    replica: str
    model: str
    generation: str
    node: str

    @property
    def said(self) -> str:
        return f"node {self.node} is supposed away"


def told(plan: Plan, fleet: Fleet, away: Iterable[str]) -> Plan:
    """`plan`, made without the nodes with the ids `away`, which `fleet` still has."""
    gone = _gone(fleet, frozenset(away))
    left = list(gone.values())
    rows = tuple(_row(row, gone, left) for row in plan.rows)
    return dataclasses.replace(
        plan, rows=rows, unplaced=tuple(_nowhere(item, left) for item in plan.unplaced)
    )


def _gone(fleet: Fleet, away: frozenset[str]) -> dict[str, _Gone]:
    found: dict[str, _Gone] = {}
    for _, shard in sorted(fleet.shards.items()):
        spec = shard.spec
        if spec.node in away and spec.replica not in found:
            found[spec.replica] = _Gone(spec.replica, spec.model, spec.generation, fleet.name(spec.node))
    return found


def _row(row: Row, gone: Mapping[str, _Gone], left: list[_Gone]) -> Row:
    """A rebuild takes the first of `left` that it can be of; a stop is of what has lost a rank."""
    if row.origin != "healing":
        return row
    if row.symbol == "-" and (one := gone.get(row.replica)) is not None:
        return dataclasses.replace(row, code="node_lost", said=one.said)
    heirs = [each for each in left if (each.model, each.generation) == (row.model, row.generation)]
    if row.symbol != "+" or not heirs:
        return row
    one = heirs[0]
    left.remove(one)
    return dataclasses.replace(
        row, symbol="=>", code="node_lost", said=one.said, replica=one.replica, left=(one.node,)
    )


def _nowhere(item: NotPlaced, left: list[_Gone]) -> NotPlaced:
    """What was ready, and finds no place without its node, was not pending before."""
    one = next((each for each in left if each.model == item.model), None)
    if item.origin != "pending" or one is None:
        return item
    left.remove(one)
    return dataclasses.replace(item, origin="healing", because=one.said)
