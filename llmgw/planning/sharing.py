"""Nodes that give out the same ports of one machine: two agents there without `--ports` of their own.

Shown by `planning.screen` and `planning.why_node`, and by the doctor. Nothing is refused: an engine that finds its port
taken fails, and says by whom.
"""

import itertools
from collections.abc import Iterable, Mapping

from llmgw.fleet.node import NodeInfo
from llmgw.planning.view import View


def shared_ports(view: View) -> Mapping[str, tuple[str, ...]]:
    """Node id → what is said of it, for the nodes that are Ready."""
    ready = (name for name, standing in view.standings.items() if standing == "Ready")
    return of_nodes(known.info for name in ready if (known := view.fleet.nodes.get(name)) is not None)


def of_nodes(nodes: Iterable[NodeInfo]) -> Mapping[str, tuple[str, ...]]:
    """As `shared_ports`, of these nodes."""
    by_address: dict[str, list[NodeInfo]] = {}
    for node in nodes:
        if node.address:
            by_address.setdefault(node.address, []).append(node)
    said: dict[str, tuple[str, ...]] = {}
    for here in by_address.values():
        here.sort(key=lambda node: (*node.ports, node.id))
        furthest = here[0]  # of those that begin before; who overlaps anybody there overlaps it
        for one, following in itertools.pairwise((*here, None)):
            for other in (furthest, following):
                if one is None or other is None or other is one or one.id in said:
                    continue
                first, last = max(one.ports[0], other.ports[0]), min(one.ports[1], other.ports[1])
                if first <= last:
                    said[one.id] = (_said(one, other, first, last),)
            if one is not None and one.ports[1] > furthest.ports[1]:
                furthest = one
    return said


def _said(one: NodeInfo, other: NodeInfo, first: int, last: int) -> str:
    return (
        f"its ports {first}-{last} at {one.address} are {other.name}'s too: "
        "give each agent of one machine its own --ports, and each machine its own --address"
    )
