"""The best that any placement could do, by integer programming: what placement is measured against."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from scipy import optimize, sparse

from llmgw.catalog.model import Catalog, Profile
from llmgw.fleet.node import NodeInfo
from llmgw.planning.wants import allows


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """Replicas that are all alike for whoever looks for room."""

    nodes: int
    gpus_per_node: int
    gpu_types: tuple[str, ...]


def best(infos: Iterable[NodeInfo], catalog: Catalog, seconds: float = 20.0) -> float:
    """GPUs in use under the best placement, or an upper bound on it when `seconds` run out.

    x[demand, node] counts shards of a demand on a node, y[demand, type] its whole replicas on nodes of
    one type: Σ x = nodes · y, and x ≤ y, so that a replica never has two shards on one node. Every node
    has cards of one type.
    """
    wanted = _wanted(catalog)
    nodes = [(info.gpus[0].name, len(info.gpus)) for info in infos if info.gpus]
    programme = _Programme()
    for demand, count in wanted.items():
        _want(programme, demand, count, nodes)
    for number, (_, cards) in enumerate(nodes):
        taken = {
            column: demand.gpus_per_node
            for (demand, where), column in programme.columns.items()
            if where == number
        }
        programme.row(taken, upper=cards)
    return programme.maximum(seconds)


def _wanted(catalog: Catalog) -> Mapping[Demand, int]:
    wanted: collections.Counter[Demand] = collections.Counter()
    for model in catalog.models.values():
        profile = catalog.profiles[model.profiles[0]]
        wanted[Demand(profile.nodes, profile.gpus_per_node, profile.gpu_types)] += model.scaling.min
    return wanted


def _want(programme: "_Programme", demand: Demand, count: int, nodes: list[tuple[str, int]]) -> None:
    profile = Profile("", "", gpu_types=demand.gpu_types)
    wholes: dict[int, int] = {}
    for kind in sorted({kind for kind, _ in nodes if allows(profile, kind)}):
        whole = programme.column(demand, kind, upper=count)
        wholes[whole] = 1
        shards = {
            programme.column(demand, number, upper=count, gain=demand.gpus_per_node): 1
            for number, (found, cards) in enumerate(nodes)
            if found == kind and cards >= demand.gpus_per_node
        }
        programme.row({**shards, whole: -demand.nodes}, lower=0, upper=0)
        for shard in shards if demand.nodes > 1 else ():
            programme.row({shard: 1, whole: -1}, upper=0)
    programme.row(wholes, upper=count)


class _Programme:
    """A maximisation over integers, written row by row."""

    def __init__(self) -> None:
        self.columns: dict[tuple[Demand, str | int], int] = {}
        self._upper: list[float] = []
        self._gain: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._bounds: list[tuple[float, float]] = []

    def column(self, demand: Demand, where: str | int, *, upper: float, gain: float = 0.0) -> int:
        self._upper.append(upper)
        self._gain.append(gain)
        self.columns[demand, where] = len(self._upper) - 1
        return len(self._upper) - 1

    def row(self, entries: Mapping[int, float], *, upper: float, lower: float = -np.inf) -> None:
        self._entries += [(len(self._bounds), column, value) for column, value in entries.items()]
        self._bounds.append((lower, upper))

    def maximum(self, seconds: float) -> float:
        if not self._entries:
            return 0.0
        rows, columns, values = zip(*self._entries, strict=True)
        shape = (len(self._bounds), len(self._upper))
        matrix = sparse.csr_array((values, (rows, columns)), shape=shape)
        lower, upper = zip(*self._bounds, strict=True)
        found = optimize.milp(
            -np.array(self._gain),
            constraints=optimize.LinearConstraint(matrix, lower, upper),
            integrality=np.ones(len(self._upper)),
            bounds=optimize.Bounds(0, np.array(self._upper)),
            options={"time_limit": seconds, "mip_rel_gap": 1e-4},
        )
        return float(-found.mip_dual_bound)
