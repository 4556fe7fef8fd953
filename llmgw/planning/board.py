"""What a pass remembers of the one before: standings, replicas, rooms and answers, kept up by what changed.

Owned by whoever repeats passes (the loop, a rehearsal, a simulated control plane) and handed to
`settle`. It makes passes faster and never different: without one, a pass builds its own. A pass that
was broken off leaves nothing behind.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from llmgw.catalog.model import Catalog
from llmgw.fleet.expiry import Timers
from llmgw.fleet.replica import Replica
from llmgw.fleet.routes import Endpoint, RoutedModel
from llmgw.fleet.shard import ShardKey, ShardSpec
from llmgw.fleet.world import Fleet, Gateway
from llmgw.planning.answers import Answers
from llmgw.planning.changes import changed
from llmgw.planning.desired import Desired, Marks
from llmgw.planning.explain import Explanations
from llmgw.planning.ledger import Draining, Ledger, Scale, Trouble
from llmgw.planning.needs import Needs, stays
from llmgw.planning.placement import DRAINED
from llmgw.planning.quarantine import quarantined
from llmgw.planning.roll import Roll
from llmgw.planning.standings import Standings, stand
from llmgw.planning.stock import Stock
from llmgw.planning.wants import Wants


class Board:
    """The memory of passes over one fleet.

    `touched` are the replicas that are other than in the last pass that acted, or drain otherwise; `untold`
    those of them that the last table did not see; `moved` = the
    clock or a node or a gateway did, so that whatever hangs on time or reach is asked again. `stale` are
    models whose need has to be worked out again; those to which only replicas came that begin to come up
    are in `joined`. `staying` are models that left and serve on until the next one answers for their names, `moving` the
    names that two tables have with different models; `no_place` are models that found none in this pass. `cordoned` says
    why a node takes nothing new: people's marks and quarantine.
    """

    def __init__(self) -> None:
        self._known: tuple[Wants, ...] = ()
        self._forget()

    def _forget(self) -> None:
        self.seen = Fleet()
        self.standings: Standings | None = None
        self.roll = Roll()
        self.registered: Mapping[str, float] = {}
        self.cordoned: Mapping[str, str] = {}
        self.wants: Wants | None = None
        self.stock = Stock()
        self.needs = Needs()
        self.explanations = Explanations()
        self.stops, self.starts = Answers(), Answers()
        self.endpoints: dict[str, Endpoint] = {}
        self.table: tuple[Endpoint, ...] = ()
        self.tabled: Mapping[str, Draining] = {}
        self.troubles: Mapping[tuple[str, str], Trouble] = {}
        self.scales: Mapping[str, Scale] = {}
        self.touched: set[str] = set()
        self.untold: set[str] = set()
        self.stale: set[str] = set()
        self.joined: dict[str, int] = {}
        self.staying: frozenset[str] = frozenset()
        self.no_place: frozenset[str] = frozenset()
        self.moving: tuple[
            tuple[RoutedModel, ...], tuple[RoutedModel, ...], Mapping[str, tuple[str, str]]
        ] = ((), (), {})
        self.moved = True
        self._sound = True
        self._timers = Timers()
        self._marks = Marks()
        self._sizes: Mapping[str, int] = {}
        self._drains: Mapping[str, Draining] = {}
        self._stood: tuple[object, ...] = ()
        self._on_node: dict[str, list[ShardKey]] = {}
        self._noted: list[ShardKey] = []
        self._pressure: dict[str, float] | None = None
        self._totals: dict[str, int] | None = None

    # --- kept up ------------------------------------------------------------------------------

    def wrote(self, key: ShardKey) -> None:
        """The owner of a draft wrote this shard into a map that was seen before."""
        self._noted.append(key)

    def look(self, desired: Desired, fleet: Fleet, ledger: Ledger, now: float, timers: Timers) -> Standings:
        """Take in everything that changed since the last pass; who is there now."""
        if timers is not self._timers and timers != self._timers:
            self._sound &= timers.still() == self._timers.still()
            self._stood = ()
        if not self._sound:
            self._forget()
        self._sound, self._timers = False, timers
        waited = self.standings is not None and bool(self.standings.unheard)
        self._adopt(desired)
        cordoned = {
            **quarantined(ledger.troubles, now, timers),
            **desired.marks.cordoned,
            **{node: f"{DRAINED}{said}" for node, said in desired.marks.draining.items()},
        }
        standings, turned = self._stand(desired.marks, fleet, ledger, now)
        other = {replica for name in turned for replica, _ in self._on_node.get(name, ())}
        worlds = self._take_in(cordoned, fleet, standings, turned)
        other |= worlds.keys() | set(changed(self._drains, ledger.drains))
        self._drains = ledger.drains
        self._derive(other, desired.marks, fleet, worlds, standings, now)
        was, marks = self._marks, desired.marks
        if (marks.paused, marks.draining) != (was.paused, was.draining) or bool(standings.unheard) != waited:
            self._all_stale()
        self.seen, self.standings = fleet, standings
        self._marks, self.cordoned = desired.marks, cordoned
        return standings

    def rest(self, *, acted: bool) -> None:
        """The pass is over. What it did not act on is still to be asked."""
        if acted:
            self.touched.clear()
            self.stale.clear()
            self.joined.clear()
            self.moved = False
        self._sound = True

    def _stand(self, marks: Marks, fleet: Fleet, ledger: Ledger, now: float) -> tuple[Standings, list[str]]:
        """Who is there, and the nodes of which that is new."""
        old = self.standings
        asked = (now, fleet.since, fleet.roster, marks.confirmed_lost, ledger.lost)
        self.moved |= fleet.gateways is not self.seen.gateways
        same = fleet.nodes is self.seen.nodes and fleet.gateways is self.seen.gateways
        if old is not None and same and asked == self._stood:
            return old, []
        self._stood, self.moved = asked, True
        new = stand(fleet, marks.confirmed_lost, ledger.lost, now, self._timers)
        was = old.of if old is not None else {}
        if new.of == was:
            return new, []
        names = new.of.keys() | was.keys()
        return new, sorted(name for name in names if new.of.get(name) != was.get(name))

    def _take_in(
        self, cordoned: Mapping[str, str], fleet: Fleet, standings: Standings, turned: Iterable[str]
    ) -> dict[str, int | None]:
        """Rooms after what changed on nodes and shards. Returns the replicas of these shards and how many ranks
        each has; None where nothing of it is left to tell.
        """
        worlds: dict[str, int | None] = {}
        arrived, emptied = self._shards(fleet, worlds)
        rebuilt = dict.fromkeys([*self._nodes(fleet), *(emptied & fleet.nodes.keys())])
        for name in rebuilt:
            specs = [fleet.shards[key].spec for key in self._on_node.get(name, ())]
            self.stock.put(fleet.nodes[name].info, specs, standings.of[name], cordoned.get(name, ""))
        restood = set(turned)
        if cordoned != self.cordoned:
            restood |= cordoned.keys() | self.cordoned.keys()
        for name in (restood - rebuilt.keys()) & self.stock.sites.keys():
            self.stock.stand(name, standings.of[name], cordoned.get(name, ""))
        for spec in arrived:
            if spec.node not in rebuilt:
                self.stock.take(spec)
        return worlds

    def _shards(self, fleet: Fleet, worlds: dict[str, int | None]) -> tuple[list[ShardSpec], set[str]]:
        """Specs that are new on their node, and nodes whose room has to be counted anew."""
        arrived: list[ShardSpec] = []
        rebuilt: set[str] = set()
        for key in {**dict.fromkeys(changed(self.seen.shards, fleet.shards)), **dict.fromkeys(self._noted)}:
            worlds.setdefault(key[0], None)
            shard, known = fleet.shards.get(key), self.roll.known(key)
            gone = known is not None and (shard is None or (shard.spec is not known and shard.spec != known))
            if known is not None and gone:
                self._on_node[known.node].remove(key)
                rebuilt.add(known.node)
            if shard is not None:
                worlds[key[0]] = len(shard.spec.peers)
            if shard is not None and (known is None or gone):
                self._on_node.setdefault(shard.spec.node, []).append(key)
                arrived.append(shard.spec)
        self._noted.clear()
        return arrived, rebuilt

    def _nodes(self, fleet: Fleet) -> list[str]:
        """Nodes that describe themselves otherwise, in order; those that went leave the stock."""
        rebuilt: list[str] = []
        heard = False
        before = self.seen.nodes
        for name in changed(before, fleet.nodes):
            old, new = before.get(name), fleet.nodes.get(name)
            heard = heard or old is None or new is None or old.since != new.since
            if new is None:
                self.stock.remove(name)
            elif old is None or old.info is not new.info:
                rebuilt.append(name)
            if old is None or new is None or old.info.gpus is not new.info.gpus:
                self._pressure = None
        if heard:
            self.registered = {name: node.since for name, node in fleet.nodes.items()}
        if rebuilt or fleet.progress is not self.seen.progress:
            self.needs.searches.clear()  # sizes of weights may be known now that were not
            self._totals = None
        return rebuilt

    def _derive(
        self,
        other: set[str],
        marks: Marks,
        fleet: Fleet,
        worlds: Mapping[str, int | None],
        standings: Standings,
        now: float,
    ) -> None:
        """Every replica that may be another one than in the last look, as it is now: `other`, and what hangs on time."""
        roll, timers = self.roll, self._timers

        def green(name: str) -> bool:
            return _green(fleet.gateways, name, now, timers)

        def derived(name: str) -> Replica | None:
            ranks = worlds.get(name)
            return roll.derived(
                name, ranks, fleet.shards, standings.of, now, timers, green=green, called=fleet.name
            )

        found = {name: derived(name) for name in other}
        if self.moved:
            roll.passed(now, timers)
            asked = ((name, derived(name)) for name in roll.hanging - other)
            found.update((name, new) for name, new in asked if new != roll.replicas[name])
        self.touched.update(found)
        self.untold.update(found)
        for name in sorted(found):
            old, new = roll.replicas.get(name), found[name]
            if old is None and new is not None and self._is_asked_for(new, marks):
                self.joined[new.model] = self.joined.get(new.model, 0) + 1
            else:
                self.stale.update(replica.model for replica in (old, new) if replica is not None)
            roll.put(name, new, now, timers)

    def _is_asked_for(self, replica: Replica, marks: Marks) -> bool:
        """Whether it is one of those that its model's need would create: it counts, and serves nothing."""
        want = self.wants.models.get(replica.model) if self.wants is not None else None
        return (
            want is not None
            and replica.phase in ("Fetching", "Starting")
            and stays(replica, want.generations, marks)
        )

    def _adopt(self, desired: Desired) -> None:
        """The catalog that stands now; every model's need is stale if it is another one."""
        catalog, before = desired.catalog, self.wants
        if desired.sizes != self._sizes:
            self.needs.searches.clear()
            self._sizes = desired.sizes
        if catalog is (before.catalog if before is not None else None):
            return
        self.wants = None if catalog is None else self._worked_out(catalog)
        self.stock.label_keys(self.wants.label_keys if self.wants is not None else frozenset())
        self._pressure, self.moved = None, True
        if before is None or self.wants is None:
            self.needs.searches.clear()
            self._all_stale()
            return
        for name in changed(before.models, self.wants.models):
            self.needs.searches.pop(name, None)
            self.stale.add(name)

    def _worked_out(self, catalog: Catalog) -> Wants:
        """What the catalog asks for; the last two are kept, for a plan looks from one to the other."""
        for known in self._known:
            if known.catalog is catalog:
                return known
        new = Wants(catalog, self.wants or next(iter(self._known), None))
        self._known = (new, *self._known[:1])
        return new

    def _all_stale(self) -> None:
        self.stale.update(
            self.needs.of, self.roll.by_model, self.wants.models if self.wants is not None else ()
        )

    # --- asked --------------------------------------------------------------------------------

    @property
    def pressure(self) -> Mapping[str, float]:
        """Demand over capacity by GPU type, of the catalog and the cards as they are."""
        if self._pressure is None:
            infos = [site.room.info for site in self.stock.sites.values()]
            self._pressure = self.wants.pressure(infos) if self.wants is not None else {}
        return self._pressure

    def asked(self, group: set[str]) -> Iterable[str]:
        """The replicas whose answers may be others than in the last pass; answers come from `group` alone."""
        return self.touched | group if self.moved else self.touched

    def works(self, node: str) -> bool:
        """Whether shards are known there."""
        return bool(self._on_node.get(node))

    def known_size(self, cache_name: str) -> int:
        """Bytes of these weights, from a node that holds them or was told their length; 0 = not known."""
        if self._totals is None:
            self._totals = {}
            for row in chain.from_iterable(self.seen.progress.values()):
                self._totals[row.cache_name] = max(row.total or 0, self._totals.get(row.cache_name, 0))
        return max(self.stock.size(cache_name), self._totals.get(cache_name, 0))

    @contextlib.contextmanager
    def without(self, names: Collection[str]) -> Iterator[None]:
        """The stock as it would be with these replicas gone."""
        stock, known = self.stock, self.roll.replicas
        nodes = {shard.spec.node for name in names if name in known for shard in known[name].present}
        nodes &= stock.sites.keys()
        version, grown = stock.version, stock.grown
        self._restock(nodes, names)
        try:
            yield
        finally:
            self._restock(nodes, ())
            stock.version, stock.grown = version, grown

    def _restock(self, nodes: Iterable[str], absent: Collection[str]) -> None:
        for node in nodes:
            site, keys = self.stock.sites[node], self._on_node.get(node, ())
            left = [self.seen.shards[key].spec for key in keys if key[0] not in absent]
            self.stock.put(site.room.info, left, site.standing, site.cordoned)


def _green(gateways: Mapping[str, Gateway], replica: str, now: float, timers: Timers) -> bool:
    """Whether it completed a request through a gateway lately: its agent may be silent, it is not."""
    greens = [gateway.green_at[replica] for gateway in gateways.values() if replica in gateway.green_at]
    return bool(greens) and now - max(greens) < timers.evidence
