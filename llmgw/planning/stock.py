"""The room on every node, kept where a search finds it: by GPU type, kind of node and free cards.

`planning.board` keeps it up; `reconcile` asks it for the best nodes of one replica. A search walks
only nodes with enough free cards of an allowed type, in the order of `placement.preference`, and tries
the rules on them until enough have passed.
"""

import bisect
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter

from llmgw.catalog import versions
from llmgw.catalog.model import Profile
from llmgw.fleet.expiry import Standing
from llmgw.fleet.inventory import Room, room
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardSpec
from llmgw.planning.placement import CPU, Choice, Request, Site, fits, preference_of_all
from llmgw.planning.wants import allows

Breed = tuple[tuple[tuple[str, str], ...] | None, tuple[tuple[str, str], ...], bool]
"""What nodes have in common for a search: engines and their versions, labels that profiles ask for, whether cores
are known."""
Shelf = tuple[str, Breed]
"""A GPU type on nodes of one breed; for models without GPUs, the nodes themselves."""
Slot = tuple[float, str, str]
"""One node on a shelf: (cores not booked, name, id); the cores are 0 where cards are counted."""
FEW = 32
"""Nodes that are looked up one by one rather than met on the way."""


class Stock:
    """Rooms by node id, and the shelves on which they lie.

    `version` grows with every change, `grown` only when room may have become free: what found no
    place since the same `grown` finds none now.
    """

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.version = 0
        self.grown = 0
        self._label_keys: frozenset[str] = frozenset()
        self._breeds: dict[str, Breed] = {}
        self._shelves: dict[Shelf, dict[int, list[Slot]]] = {}
        self._filed: dict[str, dict[Shelf, tuple[int, Slot]]] = {}
        self._keys: dict[Shelf, Shelf] = {}
        self._suiting: dict[tuple[str, str, tuple[tuple[str, str], ...], str], list[Shelf]] = {}
        self._apart: dict[str, dict[str, int]] = {}
        self._holders: dict[str, dict[str, int]] = {}

    # --- kept up ------------------------------------------------------------------------------

    def label_keys(self, keys: frozenset[str]) -> None:
        """Labels that profiles ask for from now on; other labels do not tell nodes apart."""
        self._suiting.clear()
        if keys != self._label_keys:
            self._label_keys = keys
            for node, site in self.sites.items():
                self._breeds[node] = self._breed(site.room.info)
                self._file(node)
            self._changed(grown=True)

    def put(self, info: NodeInfo, specs: Iterable[ShardSpec], standing: Standing, cordoned: str) -> None:
        """A node as it is now, whatever it was before."""
        old, new = self.sites.get(info.id), Site(room(info, specs), standing, cordoned)
        self.sites[info.id], self._breeds[info.id] = new, self._breed(info)
        self._count(info.id, old.room if old else None, new.room)
        self._file(info.id)
        self._changed(grown=True)

    def stand(self, node: str, standing: Standing, cordoned: str) -> None:
        """What a node is worth changed, not what it holds."""
        self.sites[node] = Site(self.sites[node].room, standing, cordoned)
        self._file(node)
        self._changed(grown=True)

    def remove(self, node: str) -> None:
        """The node is no more."""
        self._count(node, self.sites.pop(node).room, None)
        del self._breeds[node]
        self._file(node)
        self._changed(grown=True)

    def take(self, spec: ShardSpec) -> None:
        """A new shard takes its part of its node."""
        if spec.node in self.sites:
            self.sites[spec.node].room.add(spec)
            models = self._apart.setdefault(spec.model, {})
            models[spec.node] = models.get(spec.node, 0) + 1
            self._file(spec.node)
            self._changed(grown=False)

    def _changed(self, *, grown: bool) -> None:
        self.version += 1
        self.grown += grown

    def _count(self, node: str, old: Room | None, new: Room | None) -> None:
        """Siblings and cached weights of one node, by model and by cache name."""
        for model in old.siblings if old else ():
            _forget(self._apart, model, node)
        for name in old.cached if old else ():
            _forget(self._holders, name, node)
        if new is not None:
            for model, count in new.siblings.items():
                self._apart.setdefault(model, {})[node] = count
            for entry in new.info.weights or ():
                if entry.whole:
                    sizes = self._holders.setdefault(entry.cache_name, {})
                    sizes[node] = max(entry.size, sizes.get(node, 0))

    def _file(self, node: str) -> None:
        """Lay a node on the shelves where it belongs now."""
        old, new = self._filed.pop(node, {}), self._slots(node)
        for shelf, (count, slot) in new.items():
            if old.get(shelf) != (count, slot):
                if shelf not in self._shelves:
                    self._shelves[shelf] = {}
                    self._suiting.clear()
                bisect.insort(self._shelves[shelf].setdefault(count, []), slot)
        for shelf, (count, slot) in old.items():
            if new.get(shelf) != (count, slot):
                self._lift(shelf, count, slot)
        if new:
            self._filed[node] = new

    def _lift(self, shelf: Shelf, count: int, slot: Slot) -> None:
        slots = self._shelves[shelf][count]
        del slots[bisect.bisect_left(slots, slot)]
        if not slots:
            del self._shelves[shelf][count]
        if not self._shelves[shelf]:
            del self._shelves[shelf], self._keys[shelf]
            self._suiting.clear()

    def _slots(self, node: str) -> dict[Shelf, tuple[int, Slot]]:
        site = self.sites.get(node)
        if site is None or site.standing != "Ready" or site.cordoned:
            return {}
        info, breed = site.room.info, self._breeds[node]
        slot = (0.0, info.name, node)
        slots = {
            self._key(kind, breed): (len(cards), slot) for kind, cards in site.room.free.items() if cards
        }
        free = sum(count for count, _ in slots.values())
        slots[self._key(CPU, breed)] = (free, (site.cores_left, info.name, node))
        return slots

    def _key(self, kind: str, breed: Breed) -> Shelf:
        """One object for each shelf: thousands of nodes refer to it."""
        shelf = (kind, breed)
        return self._keys.setdefault(shelf, shelf)

    def _breed(self, info: NodeInfo) -> Breed:
        labels = tuple(pair for pair in info.labels if pair[0] in self._label_keys)
        engines = (
            None
            if info.engines is None
            else tuple([(engine.name, engine.known_version) for engine in info.engines])
        )
        return (engines, labels, info.cpu_cores is not None)

    # --- asked --------------------------------------------------------------------------------

    def size(self, cache_name: str) -> int:
        """Bytes of these weights where a node holds them; 0 = nobody does."""
        return max(self._holders.get(cache_name, {}).values(), default=0)

    def is_held(self, cache_name: str) -> bool:
        """Whether a node has these weights whole."""
        return cache_name in self._holders

    def choose(self, request: Request, pressure: Mapping[str, float]) -> Choice | None:
        """The best nodes for one replica, all or none; a gang's nodes have cards of one type.

        Rank 0's comes first in the order of preference.
        """
        best: tuple[tuple[object, ...], Choice] | None = None
        kinds = sorted(self._kinds(request.profile), key=lambda kind: (pressure.get(kind, 0.0), kind))
        for kind in kinds:
            if best is not None and best[0][:3] < (0, 0, pressure.get(kind, 0.0)):
                break
            fitting = (site for site in self._in_order(request, kind) if fits(site, request, kind))
            sites = tuple(islice(fitting, request.profile.nodes))
            if len(sites) == request.profile.nodes:
                if len(kinds) == 1:
                    return Choice(kind, sites)
                rank = preference_of_all(sites, request, kind, pressure)
                if best is None or rank < best[0]:
                    best = rank, Choice(kind, sites)
        return None if best is None else best[1]

    def _kinds(self, profile: Profile) -> set[str]:
        if not profile.gpus_per_node:
            return {CPU}
        return {kind for kind, _ in self._shelves if kind != CPU and allows(profile, kind)}

    def _in_order(self, request: Request, kind: str) -> Iterator[Site]:
        """Nodes with enough free cards of `kind`, best first."""
        shelves, least = self._shelves_for(request.profile, kind), request.profile.gpus_per_node
        enough = sorted({count for shelf in shelves for count in self._shelves[shelf] if count >= least})
        apart = self._apart.get(request.model.name, {})
        for level in chain((0,), _siblings(apart)):
            for count in enough:
                for _, _, node in self._alike(request, kind, count, shelves):
                    if apart.get(node, 0) == level:
                        yield self.sites[node]

    def _shelves_for(self, profile: Profile, kind: str) -> list[Shelf]:
        key = (profile.engine, profile.engine_version, profile.node_labels, kind)
        if key not in self._suiting:
            self._suiting[key] = [
                shelf for shelf in self._shelves if shelf[0] == kind and _suits(shelf[1], profile)
            ]
        return self._suiting[key]

    def _alike(self, request: Request, kind: str, count: int, shelves: list[Shelf]) -> Iterator[Slot]:
        """The nodes with `count` free cards: the fullest first, then those that hold the weights, then by name."""
        holders = self._holders.get(request.cache_name, {})
        slots = _merged([self._from(shelf, count, request.profile) for shelf in shelves])
        if not holders:
            yield from slots
        elif kind == CPU:
            for _, equal in groupby(slots, key=itemgetter(0)):
                yield from sorted(equal, key=lambda slot: slot[2] not in holders)
        else:
            if len(holders) <= FEW:
                filed = (self._filed.get(node, {}).get(shelf) for node in holders for shelf in shelves)
                yield from sorted(
                    slot for found in filed if found and found[0] == count for slot in found[1:]
                )
            else:
                yield from (slot for slot in slots if slot[2] in holders)
                slots = _merged([self._from(shelf, count, request.profile) for shelf in shelves])
            yield from (slot for slot in slots if slot[2] not in holders)

    def _from(self, shelf: Shelf, count: int, profile: Profile) -> Sequence[Slot]:
        """The slots of one shelf, without the nodes that are known to lack cores."""
        slots = self._shelves[shelf].get(count, [])
        if shelf[0] != CPU or not shelf[1][2] or not slots:
            return slots
        return slots[bisect.bisect_left(slots, (profile.cpu_cores, "", "")) :]


def _siblings(apart: Mapping[str, int]) -> Iterator[int]:
    """How many siblings there are on some node, fewest first; worked out when no node without any is left."""
    yield from sorted(set(apart.values()) - {0})


def _forget(counts: dict[str, dict[str, int]], name: str, node: str) -> None:
    del counts[name][node]
    if not counts[name]:
        del counts[name]


def _suits(breed: Breed, profile: Profile) -> bool:
    engines, labels, _ = breed
    return (
        engines is None
        or any(
            name == profile.engine and versions.permits(profile.engine_version, told)
            for name, told in engines
        )
    ) and all(pair in labels for pair in profile.node_labels)


def _merged(shelves: list[Sequence[Slot]]) -> Iterable[Slot]:
    return shelves[0] if len(shelves) == 1 else heapq.merge(*shelves)
