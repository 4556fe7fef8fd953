"""`llmgw plan`: the loop's own function run forward on a copy of the fleet where everything succeeds.

Every action succeeds at once, every Ready node goes on heartbeating, the silence of the others stands
still, gateways finish what they have. The transcript is the plan: order, placement, bytes, and the
lowest number of ready replicas on the way.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.routes import Routes
from llmgw.fleet.shard import ShardKey, ShardSpec, ShardStatus, State
from llmgw.fleet.world import Fleet, Node
from llmgw.kit.chance import Chance
from llmgw.kit.garbage import uncollected
from llmgw.planning import handover
from llmgw.planning.actions import Action, Assign, Drain, Start, Stop
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.needs import Unplaced
from llmgw.planning.settle import Settled, settle

_Ages = tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One action of the transcript. `fetch` is the bytes its node has to fetch; None = length not known.

    `free` = bytes of disk that the node had just before, None = not said. Steps of one `turn` happen
    together, `at` seconds after the beginning if every action took no time.
    """

    action: Action
    fetch: int | None = 0
    free: int | None = None
    turn: int = 0
    at: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would happen. `before`, `lowest` and `after` count the ready replicas of each model, `moved` the fewest that a
    name had which another model gets.

    `fleet` is as it would be at `ended`: silences have not grown on the way.
    """

    steps: tuple[Step, ...]
    before: Mapping[str, int]
    lowest: Mapping[str, int]
    after: Mapping[str, int]
    moved: Mapping[str, int]
    unplaced: tuple[Unplaced, ...]
    alarms: tuple[str, ...]
    fleet: Fleet
    ledger: Ledger
    ended: float


def rehearse(
    desired: Desired,
    fleet: Fleet,
    ledger: Ledger,
    now: float,
    chance: Chance,
    timers: Timers,
    *,
    board: Board | None = None,
) -> Rehearsal:
    """Run forward until nothing is left to do. Raises nothing: what cannot be placed is in `unplaced`.

    `board` is the memory of the passes over this fleet, lent: it makes a rehearsal cost what it changes.
    """
    with uncollected():
        return _Stage(desired, fleet, ledger, now, chance, timers, Board() if board is None else board).run()


class _Stage:
    """The copy of the fleet, and what was played on it. Lives for one rehearsal."""

    def __init__(
        self,
        desired: Desired,
        fleet: Fleet,
        ledger: Ledger,
        now: float,
        chance: Chance,
        timers: Timers,
        board: Board,
    ) -> None:
        self.desired, self.ledger, self.now, self.chance = desired, ledger, now, chance
        # Who has not spoken stays unheard: only the places to wait for move with time.
        # Nobody's requests are rehearsed: what they ask for by now stays.
        self.timers = timers.still()
        self.ready_nodes = {name for name in fleet.nodes if fleet.standing(name, now, timers) == "Ready"}
        self.fleet = self._heartbeats(fleet, fleet.nodes)
        self.board = board
        self.steps: list[Step] = []
        self.began, self.turn = now, 0
        # Evidence of the data plane stays as old as it was, like the silence that it is about; while a gateway is
        # silent there is none, and here all of them speak.
        silent = any(now - gateway.last_seen >= timers.gateway_silent for gateway in fleet.gateways.values())
        found = any(gateway.dark_at for gateway in fleet.gateways.values()) and not silent
        self.dark = _ages(fleet, "dark_at", now) if found else {}
        self.green = _ages(fleet, "green_at", now) if found else {}

    def run(self) -> Rehearsal:
        self._finish_what_is_under_way()
        old = self.ledger.routes
        first = self._settle()
        names = handover.moves(old.models, self.board.wants.routed) if self.board.wants is not None else {}
        moved = _answering(names, old)
        before = _ready(self.ledger) if self.ledger.routes.endpoints else _ready(first.ledger)
        lowest, after, table = before, before, self.ledger.routes.endpoints
        settled, quiet_since = first, self.now
        while True:
            self._take(settled)
            if settled.ledger.routes.endpoints is not table:
                table, after = settled.ledger.routes.endpoints, _ready(settled.ledger)
                lowest = {model: min(count, after.get(model, 0)) for model, count in lowest.items()}
            if names:
                answering = _answering(names, settled.ledger.routes)
                moved = {name: min(count, answering[name]) for name, count in moved.items()}
            if settled.actions:
                quiet_since = self.now
            elif settled.wake_at is None or settled.wake_at > quiet_since + self._patience():
                break
            else:
                self._pass_time(settled.wake_at)
            settled = self._settle()
        return Rehearsal(
            steps=tuple(self.steps),
            before=before,
            lowest={model: lowest.get(model, 0) for model in {*before, *after}},
            after=after,
            moved=moved,
            unplaced=settled.unplaced,
            alarms=first.alarms,
            fleet=self.fleet,
            ledger=self.ledger,
            ended=self.now,
        )

    def _finish_what_is_under_way(self) -> None:
        """Orders that were sent before succeed like those that are rehearsed."""
        said: dict[str, list[ShardStatus]] = {}
        arriving: dict[str, list[ShardSpec]] = {}
        for key, shard in self.fleet.shards.items():
            node, status = shard.spec.node, shard.status
            if node not in self.ready_nodes:
                continue
            if status.state == "stopping" or shard.ordered == "stop":
                said.setdefault(node, []).append(dataclasses.replace(status, state="gone"))
            elif status.state in ("starting", "started") or (
                shard.ordered == "start" and status.state != "ready"
            ):
                said.setdefault(node, []).append(self._reports(key, "ready")[1])
            elif status.state in ("assigned", "fetching"):
                arriving.setdefault(node, []).append(shard.spec)
                said.setdefault(node, []).append(dataclasses.replace(status, state="held"))
            elif key[0] in self.ledger.drains and not status.idle:
                said.setdefault(node, []).append(dataclasses.replace(status, idle=True))
        self._hear(said, arriving)

    def _hear(self, said: Mapping[str, list[ShardStatus]], arriving: Mapping[str, list[ShardSpec]]) -> None:
        """The nodes report, with the weights that arrived for new shards."""
        reports = [
            events.Reported(
                node, tuple(said[node]), self._holding(node, arriving[node]) if node in arriving else None
            )
            for node in said
        ]
        self.fleet = self._heartbeats(self.fleet.after(reports, self.now), said)

    def _settle(self) -> Settled:
        return settle(self.desired, self.fleet, self.ledger, self.now, self.chance, self.timers, self.board)

    def _take(self, settled: Settled) -> None:
        self.fleet, self.ledger = settled.fleet, settled.ledger
        said: dict[str, list[ShardStatus]] = {}
        arriving: dict[str, list[ShardSpec]] = {}
        held: set[tuple[str, str]] = set()
        brought: dict[str, int] = {}
        self.turn += bool(settled.actions)
        for action in settled.actions:
            fetch = self._fetch(action, held)
            free = self._free(action, brought, fetch)
            self.steps.append(Step(action, fetch, free, self.turn, self.now - self.began))
            if isinstance(action, Assign):
                arriving.setdefault(action.spec.node, []).append(action.spec)
            for node, status in self._succeed(action):
                said.setdefault(node, []).append(status)
        self._hear(said, arriving)
        self._gateways_speak()

    def _gateways_speak(self) -> None:
        version = self.ledger.routes.version
        seen = [
            events.GatewaySeen(name, version, green=self.green.get(name, ()), dark=self.dark.get(name, ()))
            for name in self.fleet.gateways
        ]
        self.fleet = self.fleet.after(seen, self.now)

    def _fetch(self, action: Action, held: set[tuple[str, str]]) -> int | None:
        """Bytes that a new shard has to fetch; `held` are (node, cache name) that another one fetches."""
        if not isinstance(action, Assign) or not action.spec.source.fetched:
            return 0
        entry = (action.spec.node, action.spec.cache_name)
        if entry in held or self.fleet.nodes[entry[0]].info.holds(entry[1]):
            return 0
        held.add(entry)
        size, begun = action.spec.source_bytes, self.fleet.nodes[entry[0]].info.begun(entry[1])
        return max(0, size - (begun.size if begun is not None else 0)) if size else None

    def _free(self, action: Action, brought: dict[str, int], fetch: int | None) -> int | None:
        """Disk of the node of a new shard that this fetch can take, what it has claimed too; `brought` are bytes by node
        in this turn.
        """
        if not isinstance(action, Assign):
            return None
        spec, info = action.spec, self.fleet.nodes[action.spec.node].info
        takes = info.takes(spec.cache_name, spec.source_bytes) if fetch else 0
        before, brought[spec.node] = brought.get(spec.node, 0), brought.get(spec.node, 0) + takes
        return None if info.disk_free is None else info.disk_free - before + (fetch or 0) - takes

    def _succeed(self, action: Action) -> Iterable[tuple[str, ShardStatus]]:
        """(node, what it reports) once it has obeyed."""
        match action:
            case Assign(spec=spec):
                yield spec.node, ShardStatus(*spec.key, "held")
            case Start(key=key) if key in self.fleet.shards:
                yield self._reports(key, "ready")
            case Drain(replica=replica):
                for shard in self.board.roll.replicas[replica].present:
                    yield self._reports(shard.spec.key, shard.status.state)
            case Stop(key=key) if key in self.fleet.shards:
                yield self._reports(key, "stopping")
                yield self._reports(key, "gone")

    def _reports(self, key: ShardKey, state: State) -> tuple[str, ShardStatus]:
        shard = self.fleet.shards[key]
        return shard.spec.node, dataclasses.replace(shard.status, state=state, idle=True, reason="")

    def _holding(self, node: str, specs: list[ShardSpec]) -> NodeInfo:
        """The node once it has fetched the weights of these shards."""
        info = self.fleet.nodes[node].info
        entries, left = list(info.weights or ()), info.disk_free
        names = {entry.cache_name for entry in entries if entry.whole}
        for spec in specs:
            if spec.source.fetched and spec.cache_name not in names:
                names.add(spec.cache_name)
                left = None if left is None else left - info.takes(spec.cache_name, spec.source_bytes)
                entries = [each for each in entries if each.cache_name != spec.cache_name]
                entries.append(CachedWeights(spec.cache_name, spec.source.canonical, spec.source_bytes))
        return dataclasses.replace(info, weights=tuple(entries), disk_free=left)

    def _pass_time(self, until: float) -> None:
        passed, self.now = until - self.now, until
        self.fleet = self._heartbeats(self.fleet, self.fleet.nodes.keys() - self.ready_nodes, passed)
        if any(self.dark.values()):
            self._gateways_speak()

    def _heartbeats(self, fleet: Fleet, names: Collection[str], passed: float = 0.0) -> Fleet:
        """The Ready ones of these nodes go on being heard; the silence of the others is as long as it was."""
        if not names:
            return fleet
        nodes = dict(fleet.nodes)
        for name in names:
            node = nodes[name]
            last_seen = math.inf if name in self.ready_nodes else node.last_seen + passed
            nodes[name] = Node(node.info, last_seen, node.since, True, node.failures)
        return dataclasses.replace(fleet, nodes=nodes)

    def _patience(self) -> float:
        """Seconds after which a wait that changed nothing is nobody's wait any more."""
        limits = [drain.limit - drain.since for drain in self.ledger.drains.values()]
        timers = self.timers
        return max(timers.min_ready, timers.place_grace, timers.backoff_cap * 1.25, *limits) + 1


def _ages(fleet: Fleet, of: Literal["dark_at", "green_at"], now: float) -> dict[str, _Ages]:
    """How long ago each gateway had this evidence of which replica."""
    gateways = fleet.gateways.items()
    return {name: tuple((each, now - at) for each, at in getattr(one, of).items()) for name, one in gateways}


def _answering(names: Collection[str], table: Routes) -> dict[str, int]:
    """How many ready replicas answer for each of `names` by this table."""
    if not names:
        return {}
    ready = Counter(endpoint.model for endpoint in table.endpoints if not endpoint.draining)
    owners = {alias: model.name for model in table.models for alias in model.aliases}
    owners |= {model.name: model.name for model in table.models}
    return {name: ready[owners.get(name, "")] for name in names}


def _ready(ledger: Ledger) -> dict[str, int]:
    counts: dict[str, int] = {}
    for endpoint in ledger.routes.endpoints:
        counts[endpoint.model] = counts.get(endpoint.model, 0) + (not endpoint.draining)
    return counts
