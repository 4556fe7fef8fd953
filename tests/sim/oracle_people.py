"""What must hold of people's marks, of counts between bounds, of plans and of bounded tables.

`sim.oracle` asks it with what it is told itself; codes are those of the design.
"""

import collections
from collections.abc import Callable, Container, Iterable, Mapping, Set
from typing import TYPE_CHECKING

from llmgw.agent.core import AgentState
from llmgw.catalog.model import Model, Scaling
from llmgw.control import journal
from llmgw.control.marks import MOST
from llmgw.fleet.expiry import Timers
from llmgw.fleet.routes import RoutedModel, Routes
from llmgw.fleet.shard import ShardKey, ShardSpec
from llmgw.fleet.world import Fleet
from llmgw.planning import actions
from llmgw.planning.ledger import Ledger
from llmgw.planning.plan import Plan
from llmgw.planning.quarantine import MODELS
from llmgw.planning.standings import Standings
from tests.sim import scenario
from tests.sim.agents import FAILURES, SHARDS
from tests.sim.machines import MEMORY

if TYPE_CHECKING:
    from tests.sim.agents import Agent
    from tests.sim.control import Control
    from tests.sim.world import World

Require = Callable[[bool, str, str], None]
Key = tuple[str, str]


def _moves(before: Iterable[RoutedModel], after: Iterable[RoutedModel | Model]) -> dict[str, tuple[str, str]]:
    """Names that are one model's before and another one's after."""
    old, new = ({name: m.name for m in of for name in (*m.aliases, m.name)} for of in (before, after))
    return {name: (old[name], new[name]) for name in old.keys() & new.keys() if old[name] != new[name]}


class PeopleOracle:
    """The second judge of one run; `require` ends it."""

    def __init__(self, world: "World", require: Require) -> None:
        self._world = world
        self._require = require
        self._asked: dict[str, collections.deque[tuple[float, int]]] = {}
        self._blamed: dict[Key, tuple[frozenset[str], float]] = {}
        self._offered: dict[ShardKey, str] = {}
        self._tables: tuple[Routes | None, Routes | None, float] = (None, None, 0.0)

    def control_started(self) -> None:
        """A new life of the control plane has seen no load and blames nobody."""
        self._asked, self._blamed, self._offered = {}, {}, {}
        self._tables = (None, None, 0.0)

    # --- marks --------------------------------------------------------------------------------

    def ordered(self, control: "Control", action: actions.Action) -> None:
        """Hands: nothing new on closed nodes, nothing at all for paused models. S2: disk and memory."""
        marks = self._world.marks
        match action:
            case actions.Assign(spec=spec) if spec.key not in self._world.assigned:
                closed = marks.cordoned.keys() | marks.draining.keys()
                self._require(
                    spec.node not in closed, "S2", f"{spec.replica} is placed on closed {spec.node}"
                )
                self._require(
                    spec.model not in marks.paused,
                    "S2",
                    f"{spec.replica} is placed, and {spec.model} is paused",
                )
                self._trusted(control, spec)
                self._fits(control, spec)
                self._offered[spec.key] = spec.generation
            case actions.Drain(replica=replica):
                paused = marks.paused.keys() & self._world.disk.catalog.models.keys()
                self._require(
                    replica.rpartition("/")[0] not in paused,
                    "S5",
                    f"{replica} drains, and its model is paused",
                )
                self._leaves_enough(control, replica)
                self._hands_over(replica, action.because)

    def _fits(self, control: "Control", spec: ShardSpec) -> None:
        """S2: by what the node said and what is on its way there."""
        info = control.fleet.nodes[spec.node].info
        others = [s.spec for s in control.fleet.on_node(spec.node) if s.spec.key != spec.key]
        booked = sum(other.profile.cpu_memory for other in others) + spec.profile.cpu_memory
        self._require(booked <= MEMORY, "S2", f"{spec.node} has promised {booked} bytes of memory")
        if info.disk_free is None or info.holds(spec.cache_name) or not spec.source.fetched:
            return
        coming = {s.cache_name: s.source_bytes for s in others if not info.holds(s.cache_name)}
        coming[spec.cache_name] = spec.source_bytes
        need = sum(info.takes(name, size) for name, size in coming.items())
        self._require(
            not spec.source_bytes or need <= info.disk_free,
            "S2",
            f"{spec.replica} brings {need} bytes to {spec.node}, which has {info.disk_free}",
        )

    def _leaves_enough(self, control: "Control", replica: str) -> None:
        """S10: when drains begin, at least min(what served, what is wanted) go on serving."""
        head = next((s.spec for (name, _), s in control.fleet.shards.items() if name == replica), None)
        model = self._world.disk.catalog.models.get(head.model) if head is not None else None
        if model is None:
            return
        routed = {endpoint.replica for endpoint in control.ledger.routes.endpoints}
        true = {name for name in self._world.serving(model.name) if name in routed}
        serving, drains = self._by_word(control, model.name) | true, control.ledger.drains
        begun = {name for name in serving if name in drains and drains[name].since == self._world.clock.now}
        gaps = sum(drains[name].gap for name in begun)
        left, before = len(serving - drains.keys()), len(serving - drains.keys()) + len(begun)
        self._require(
            left >= min(before, model.scaling.min) - gaps,
            "S10",
            f"{replica} drains: {left} of {before} go on serving, {model.scaling.min} wanted",
        )

    def published(self, table: Routes) -> None:
        """S10: a name moves to another model once that one serves, or once nothing is left that had it."""
        old = self._tables[1]
        self._tables = (old, table, self._world.clock.now)
        if old is None or old.models == table.models:
            return
        serving = {e.model for e in table.endpoints if not e.draining}
        wanted = {name for name, model in self._world.disk.catalog.models.items() if model.scaling.min}
        for name, (was, heir) in _moves(old.models, table.models).items():
            lost = was in serving and heir in wanted and heir not in serving
            self._require(not lost, "S10", f"{name} goes from {was}, which serves, to {heir}, which does not")

    def _hands_over(self, replica: str, because: str) -> None:
        """S10: what left the catalog serves on until the model that gets its names does, but for want of room."""
        model, catalog = replica.rpartition("/")[0], self._world.disk.catalog
        before, newest, at = self._tables
        table = before if at == self._world.clock.now else newest
        if model in catalog.models or table is None or "no room" in because:
            return
        endpoints = table.endpoints
        if not any(e.replica == replica and not e.draining for e in endpoints):
            return
        there = {e.model for known in (table, newest) if known for e in known.endpoints if not e.draining}
        for name, (was, heir) in _moves(table.models, catalog.models.values()).items():
            waits = was == model and catalog.models[heir].scaling.min and heir not in there
            self._require(
                not waits, "S10", f"{replica} drains, and {heir}, which gets {name}, serves nobody yet"
            )

    def _by_word(self, control: "Control", model: str) -> set[str]:
        """The replicas whose every rank is ready, as their nodes said last, and whose nodes are not lost."""
        ranks: collections.Counter[str] = collections.Counter()
        size: dict[str, int] = {}
        for shard in control.fleet.shards.values():
            believed = self._world.silence(shard.spec.node) < control.timers.lost
            if shard.spec.model == model and shard.state == "ready" and believed:
                ranks[shard.spec.replica] += 1
                size[shard.spec.replica] = len(shard.spec.peers)
        return {name for name, count in ranks.items() if count == size[name]}

    # --- quarantine ---------------------------------------------------------------------------

    def failed(self, key: Key, nodes: frozenset[str], at: float) -> None:
        """Shards of a generation failed on `nodes` at this instant, and that counts."""
        before, newest = self._blamed.get(key, (nodes, at))
        # Two failures that meet in one pass blame the nodes of one of them; one that is told late blames nobody.
        if at >= newest - 1.0:
            self._blamed[key] = (nodes if at - newest > 1.0 else nodes & before, max(at, newest))
        self._offered = {shard: of for shard, of in self._offered.items() if of != key[1]}

    def confirmed(self, shard: ShardKey) -> None:
        """Its node speaks of this shard."""
        self._offered.pop(shard, None)

    def catalog_changed(self, wanted: Mapping[str, Container[str]]) -> None:
        """Generations that nobody wants any more blame nobody when they come back."""
        self._blamed = {key: said for key, said in self._blamed.items() if key[1] in wanted.get(key[0], ())}

    def forgiven(self, model: str) -> None:
        """People cleared what is held against a model."""
        self._blamed = {key: said for key, said in self._blamed.items() if key[0] != model}

    def _trusted(self, control: "Control", spec: ShardSpec) -> None:
        """S2: a node on which several models just failed takes nothing."""
        fresh = self._world.clock.now - min(control.timers.backoff_cap, control.timers.backoff_reset) + 5.0
        wanted = scenario.current(self._world.disk.catalog)
        # What its node never confirmed failed there, and we cannot see when: also if nothing is left of it.
        doubtful = set(self._offered.values())
        blaming = {
            model
            for (model, generation), (nodes, at) in self._blamed.items()
            if spec.node in nodes
            and at > fresh
            and generation in wanted.get(model, ())
            and generation not in doubtful
        }
        self._require(
            len(blaming) < MODELS,
            "S2",
            f"{spec.replica} is placed on {spec.node}, where {', '.join(sorted(blaming))} just failed",
        )

    # --- counts between bounds ----------------------------------------------------------------

    def passed(
        self, before: Ledger, after: Ledger, fleet: Fleet, timers: Timers, standings: Standings | None
    ) -> None:
        """Rule 12: within the bounds always, held while signals are stale, down only after a whole window."""
        if not after.scales:
            return
        models, now = self._world.disk.catalog.models, self._world.clock.now
        stale = not fleet.gateways or any(
            now - known.last_seen >= timers.gateway_silent for known in fleet.gateways.values()
        )
        for name, scale in after.scales.items():
            if name not in models:
                continue
            bounds, old = models[name].scaling, before.scales.get(name)
            self._require(
                bounds.min <= scale.count <= bounds.max,
                "S10",
                f"{scale.count} of {name} are wanted, its bounds are {bounds.min} and {bounds.max}",
            )
            if old is None:
                continue
            held = _within(old.count, bounds)
            self._require(
                not stale or scale.count == held,
                "S10",
                f"{scale.count} of {name} are wanted after {held}, and nobody told its load",
            )
            if not stale and standings is not None and standings.heard and not standings.dark:
                self._window(name, scale.count, held, _asked(fleet, name, bounds), timers)

    def _window(self, name: str, count: int, held: int, asked: int, timers: Timers) -> None:
        now = self._world.clock.now
        seen = self._asked.setdefault(name, collections.deque())
        seen.append((now, asked))
        while seen and seen[0][0] < now - timers.scale_window + 1.0:
            seen.popleft()
        most = max(asked for _, asked in seen)
        self._require(
            count >= min(held, most),
            "S10",
            f"{count} of {name} are wanted after {held}, and {most} were asked for within the window",
        )

    # --- plans --------------------------------------------------------------------------------

    def compared(self, plan: Plan, again: Plan) -> None:
        """S20: two plans are the same if and only if they say the same."""
        same = _told(plan) == _told(again)
        self._require(
            same == (plan.digest == again.digest),
            "S20",
            f"{plan.id} and {again.id} {'say the same' if same else 'differ'}",
        )

    # --- tables -------------------------------------------------------------------------------

    def stepped(self, agent: "Agent", state: AgentState) -> None:
        """S25: an agent remembers no more than it may."""
        if len(state.shards) > SHARDS or len(state.failed) > FAILURES:
            self._bound(f"{agent.instance} keeps shards", len(state.shards), SHARDS)
            self._bound(f"{agent.instance} remembers failures", len(state.failed), FAILURES)

    def bounded(self, control: "Control", ledger: Ledger, fleet: Fleet) -> None:
        """S25: so does the control plane."""
        self._bound("the journal", len(control.loop._journal.after(0)), journal.KEPT)
        self._bound("marks", len(self._world.disk.marks.marks), MOST)
        there = fleet.roster | fleet.nodes.keys()
        self._within("nodes", fleet.nodes.keys(), fleet.roster)
        self._within("lost nodes", ledger.lost, there)
        self._within("progress", fleet.progress.keys(), fleet.nodes.keys())
        self._within("gateways", fleet.gateways.keys(), self._world.gateways.keys())

    def _bound(self, what: str, there: int, most: int) -> None:
        self._require(there <= most, "S25", f"{what}: {there}, at most {most}")

    def _within(self, what: str, keys: Set[str], allowed: Set[str]) -> None:
        if not allowed >= keys:
            self._require(False, "S25", f"{what} keeps {sorted(keys - allowed)[:3]}")


def _within(count: int, bounds: Scaling) -> int:
    return max(bounds.min, min(count, bounds.max))


def _asked(fleet: Fleet, model: str, bounds: Scaling) -> int:
    """How many replicas the requests that gateways told of would fill."""
    load = sum(known.queued.get(model, 0) for known in fleet.gateways.values()) + sum(
        count
        for known in fleet.gateways.values()
        for replica, count in known.in_flight.items()
        if replica.rpartition("/")[0] == model
    )
    return _within(-(-load // bounds.target_in_flight), bounds)


def _told(plan: Plan) -> tuple[str, collections.Counter[tuple[object, ...]]]:
    """What a plan says it changes, without nodes, times and self-healing."""
    rows = [row for row in plan.rows if row.origin == "change"]
    return plan.catalog_digest, collections.Counter(
        (row.symbol, row.model, row.code, row.generation, row.said, row.also) for row in rows
    )
