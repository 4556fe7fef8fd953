"""The node's decisions: (state, event, now) → (state, commands), with no effect of its own.

`agent.supervisor` feeds it what the session, the processes and the fetches say, and obeys the
commands it returns; the simulation drives the same function against simulated machines.

Three rules shape it. GPUs and ports of a shard are free only after `Swept`, when nobody of its tree
is left. A failed shard stays failed, its residue swept, until it is told to stop. Every command of
the control plane may come twice or late, and then changes nothing but is answered with the truth.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llmgw.catalog.sources import Source
from llmgw.fleet.lifecycle import ALIVE, NEXT
from llmgw.fleet.node import Gpu
from llmgw.fleet.shard import Failure, ShardKey, ShardSpec, ShardStatus, State
from llmgw.kit.units import show_memory, show_seconds
from llmgw.wire import messages

Order = messages.Assign | messages.Start | messages.Stop
SERVED: tuple[State, ...] = ("ready", "draining")
"""States in which clients were sent to it."""
Beyond = Mapping[str, Any]
FailureKey = tuple[str, str]
"""(model, generation)."""


# --- state -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of Ready that clear a model's failures, and the bounds of the two tables."""

    reset_after: float = 300.0
    shards: int = 1024
    failures: int = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """One shard of this node. `deadline` is when a start has failed; None = nothing is due.

    A `refused` shard holds neither GPUs nor ports. `swept` = no process of it is left, or none ever was.
    `served` is for how many seconds one that failed had been ready. `beyond` are the keys of its spec that only a newer
    release knows.
    """

    spec: ShardSpec
    state: State
    since: float
    reason: str = ""
    pid: int = 0
    adopted: bool = False
    idle: bool | None = None
    slow: bool = False
    deadline: float | None = None
    refused: bool = False
    swept: bool = True
    served: float = 0.0
    beyond: Beyond = dataclasses.field(default_factory=dict)

    def status(self, now: float) -> ShardStatus:
        """As it is reported."""
        return ShardStatus(
            replica=self.spec.replica,
            rank=self.spec.rank,
            state=self.state,
            age=max(0.0, now - self.since),
            reason=self.reason,
            pid=self.pid,
            adopted=self.adopted,
            idle=self.idle,
            slow=self.slow,
            served=self.served,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """Failures in a row of one (model, generation); `at`, `reason` and `served` are of the newest."""

    count: int
    at: float
    reason: str
    served: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Stray:
    """A launch of ours that no record describes; `pid` is its oldest process.

    `cards` are those that its environment names, by UUID; None = it cannot be read: any card.
    """

    cookie: str
    pid: int = 0
    cards: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AgentState:
    """Everything the node decides by. `node` is the id that its specs must name.

    `cards` and `memory` (bytes) are what was told of the machine last; None = not known, which refuses nothing.
    `orphans` are launches of ours that no record describes; `ending` those of them that end, `left` those
    that only a newer release describes.
    """

    node: str
    limits: Limits = Limits()
    orphans: tuple[Stray, ...] = ()
    ending: tuple[Stray, ...] = ()
    left: tuple[Stray, ...] = ()
    cards: tuple[Gpu, ...] | None = None
    memory: int | None = None
    shards: Mapping[ShardKey, Kept] = dataclasses.field(default_factory=dict)
    failed: Mapping[FailureKey, Failed] = dataclasses.field(default_factory=dict)

    def statuses(self, now: float) -> tuple[tuple[ShardSpec, ShardStatus], ...]:
        """Every shard as Register says it."""
        return tuple((kept.spec, kept.status(now)) for kept in self.shards.values())

    def beyond(self) -> Mapping[ShardKey, Beyond]:
        """What specs have that only a newer release knows: said back as it came."""
        return {key: kept.beyond for key, kept in self.shards.items() if kept.beyond}

    def failures(self, now: float) -> tuple[Failure, ...]:
        """What is remembered of failed starts, as Register says it."""
        return tuple(
            Failure(model, generation, failed.count, max(0.0, now - failed.at), failed.reason, failed.served)
            for (model, generation), failed in self.failed.items()
        )

    def idle(self) -> tuple[tuple[ShardKey, bool], ...]:
        """What the engines' own counters say, as Heartbeat says it."""
        return tuple((key, kept.idle) for key, kept in self.shards.items() if kept.idle is not None)

    def undescribed(self) -> frozenset[str]:
        """The cookies of launches that hold what they hold as strangers do: no shard here stands for them."""
        return frozenset(stray.cookie for stray in self._strays())

    def inventory(self, gpus: tuple[Gpu, ...] | None) -> tuple[Gpu, ...] | None:
        """The cards as they are told: one that such a launch may hold is withdrawn, whatever is charged on it yet, and
        one with a stranger that bars it.
        """
        if gpus is None or not (self._strays() or any(_barred(gpu) for gpu in gpus)):
            return gpus
        return tuple(
            dataclasses.replace(gpu, healthy=False, said=said)
            if gpu.healthy and (said := self.strayed(gpu.uuid) or _barred(gpu))
            else gpu
            for gpu in gpus
        )

    def strayed(self, card: str) -> str:
        """Who of the launches that nothing describes may hold this card, in words; empty = nobody.

        One whose cards cannot be read may hold every card that no shard here holds.
        """
        ours = any(card in kept.spec.gpus for kept in _holding(self))
        for stray in self._strays():
            if not ours if stray.cards is None else card in stray.cards:
                may = "may hold" if stray.cards is None else "holds"
                return f"pid {stray.pid} {may} it, an engine of ours that no record describes"
        return ""

    def _strays(self) -> tuple[Stray, ...]:
        return (*self.orphans, *self.ending, *self.left)

    def ports_taken(self) -> tuple[int, ...]:
        """The ports that shards hold, ascending."""
        return tuple(sorted({port for kept in _holding(self) for port in kept.spec.ports}))


# --- events ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Commanded:
    """The control plane asked; the session has already refused what is older than its epoch."""

    command: Order


@dataclasses.dataclass(frozen=True, slots=True)
class Fetching:
    """The weights are not here, bytes are under way. Left out where they already were."""

    cache_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched:
    """The weights are here, whole."""

    cache_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class FetchFailed:
    """The weights cannot be had; `said` is why."""

    cache_name: str
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Launched:
    """The process of a shard exists and its record is on the disk."""

    key: ShardKey
    pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The process could not be started; `said` is why."""

    key: ShardKey
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Milestone:
    """The engine was seen to have come this far."""

    key: ShardKey
    reached: Literal["started", "ready"]


@dataclasses.dataclass(frozen=True, slots=True)
class Waits:
    """What a start is waiting for now, or why a ready engine is slow, in words that change only when that does.

    Empty = nothing.
    """

    key: ShardKey
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Exited:
    """The leader ended, or its health says that it is dead; `said` is the reason people read."""

    key: ShardKey
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Swept:
    """Verified: no process of the shard is left and its memory is back."""

    key: ShardKey


@dataclasses.dataclass(frozen=True, slots=True)
class Lingers:
    """A sweep goes on longer than it should; `said` names who is left."""

    key: ShardKey
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Idle:
    """The engine's own counters: nothing runs or waits (True), or something does."""

    key: ShardKey
    idle: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Slow:
    """The engine lives and answers no probes (True), or answers again."""

    key: ShardKey
    slow: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Adopted:
    """A live shard that a restarted agent found with its record. `age` = seconds since its exec, `stands` = seconds
    since it reached its state."""

    spec: ShardSpec
    pid: int
    state: Literal["starting", "started", "ready"]
    age: float
    stands: float
    beyond: Beyond = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Undescribed:
    """What a restarted agent found alive with our mark and without a record.

    `left` = there is a record, of a newer release: they are left alone.
    """

    orphans: tuple[Stray, ...]
    left: tuple[Stray, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """The machine as the control plane is told of it now: its cards, and its memory in bytes. None = not known."""

    cards: tuple[Gpu, ...] | None
    memory: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """The control plane has spoken to this agent."""


@dataclasses.dataclass(frozen=True, slots=True)
class OrphanEnded:
    """Verified: nobody of this launch is left."""

    cookie: str


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: `wake_at` was reached."""


Event = (
    Commanded
    | Fetching
    | Fetched
    | FetchFailed
    | Launched
    | LaunchFailed
    | Milestone
    | Waits
    | Exited
    | Swept
    | Lingers
    | Idle
    | Slow
    | Adopted
    | Undescribed
    | Seen
    | Heard
    | OrphanEnded
    | Tick
)


# --- commands --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """Bring these weights; answered by Fetched or FetchFailed. `size` in bytes, 0 = unknown."""

    source: Source
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """No shard waits for these weights any more."""

    cache_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Execute the engine; answered by Launched or LaunchFailed."""

    spec: ShardSpec
    beyond: Beyond = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Terminate:
    """TERM the leader, wait `grace` seconds, then as Sweep; answered by Swept."""

    key: ShardKey
    grace: float


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """Kill what is left of the tree and verify; answered by Swept, also where nothing ever ran."""

    key: ShardKey


@dataclasses.dataclass(frozen=True, slots=True)
class EndOrphan:
    """Kill what carries this mark and verify, on its `cards` too (None = any); answered by OrphanEnded."""

    cookie: str
    cards: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Forget:
    """The shard is gone: remove its record."""

    key: ShardKey


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Tell the control plane."""

    statuses: tuple[ShardStatus, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Recount:
    """Look at the node anew and tell what changed: something is free that was no shard's."""


Command = Fetch | Release | Launch | Terminate | Sweep | EndOrphan | Forget | Report | Recount
Step = tuple[AgentState, tuple[Command, ...]]


# --- the function ----------------------------------------------------------------------------


def step(state: AgentState, event: Event, now: float) -> Step:  # noqa: PLR0911, PLR0912 - one arm an event
    """The node after `event`, and what must be done about it, in this order."""
    match event:
        case Commanded(command=command):
            return _commanded(state, command, now)
        case Fetching(cache_name=name):
            return _all(state, _waiting(state, name, ("assigned",)), "fetching", now)
        case Fetched(cache_name=name):
            return _all(state, _waiting(state, name), "held", now)
        case FetchFailed(cache_name=name, said=said):
            return _fail(state, _waiting(state, name), said, now)
        case Launched(key=key, pid=pid):
            return _launched(state, key, pid, now)
        case LaunchFailed(key=key, said=said) | Exited(key=key, said=said):
            return _fail(state, _alive(state, key), said, now)
        case Milestone(key=key, reached=reached):
            return _reached(state, key, reached, now)
        case Swept(key=key):
            return _swept(state, key, now)
        case Waits(key=key, said=said):
            return _noted(state, key, said, ("starting", "started", "ready"), now)
        case Lingers(key=key, said=said):
            return _noted(state, key, said, ("stopping",), now)
        case Idle(key=key, idle=idle):
            return _counted(state, key, idle, now)
        case Slow(key=key, slow=slow):
            return _graded(state, key, slow, now)
        case Adopted():
            return _adopted(state, event, now)
        case Undescribed():
            return _undescribed(state, event)
        case Seen(cards=cards, memory=memory):
            return dataclasses.replace(state, cards=cards, memory=memory), ()
        case Heard():
            return _heard(state)
        case OrphanEnded(cookie=cookie):
            return _orphan_ended(state, cookie)
        case Tick():
            return _tick(state, now)


def wake_at(state: AgentState) -> float | None:
    """When a Tick is due at the latest; None = only an event changes anything."""
    due = [kept.deadline for kept in state.shards.values() if kept.deadline is not None]
    due += [_healed_at(state, kept) for kept in _healing(state)]
    return min(due, default=None)


# --- what the control plane asks -------------------------------------------------------------


def _commanded(state: AgentState, command: Order, now: float) -> Step:
    match command:
        case messages.Assign():
            return _assign(state, command.spec, command.beyond, now)
        case messages.Start():
            return _start(state, command, now)
        case messages.Stop():
            return _stop(state, command, now)


def _assign(state: AgentState, spec: ShardSpec, beyond: Beyond, now: float) -> Step:
    if spec.key in state.shards:
        return state, (_report(state.shards[spec.key], now),)
    refusal = _refusal(state, spec)
    if refusal:
        kept = Kept(spec, "failed", now, reason=f"refused: {refusal}", refused=True, beyond=beyond)
        room = len(state.shards) < state.limits.shards
        return (_put(state, [kept]) if room else state), (_report(kept, now),)
    wanted = not _waiting(state, spec.cache_name)
    kept = Kept(spec, "assigned", now, beyond=beyond)
    fetch = (Fetch(spec.source, spec.source_bytes),) if wanted else ()
    return _put(state, [kept]), (*fetch, _report(kept, now))


def _refusal(state: AgentState, spec: ShardSpec) -> str:
    """Why this shard cannot be taken; empty = it can."""
    if spec.node != state.node:
        return f"it is meant for node {spec.node}, this is {state.node}"
    if len(state.shards) >= state.limits.shards:
        return f"this node already keeps {len(state.shards)} shards"
    if spec.profile.gpus_per_node and not spec.gpus:
        return f"it needs {spec.profile.gpus_per_node} GPUs and names none"
    for kept in _holding(state):
        holder = f"{kept.spec.replica} rank {kept.spec.rank} ({kept.state})"
        for gpu in spec.gpus:
            if gpu in kept.spec.gpus:
                return f"GPU {gpu} is held by {holder}"
        both = range(max(spec.ports[0], kept.spec.ports[0]), min(spec.ports[-1], kept.spec.ports[-1]) + 1)
        if both:
            return f"port {both[0]} is held by {holder}"
    return _no_room(state, spec)


def _no_room(state: AgentState, spec: ShardSpec) -> str:
    """What of this machine cannot take one more shard, as it was seen last; empty = all of it can."""
    if said := _no_cards(state, spec):
        return said
    needed = spec.profile.cpu_memory
    if not needed or state.memory is None:
        return ""
    left = state.memory - sum(kept.spec.profile.cpu_memory for kept in _holding(state))
    if needed <= left:
        return ""
    return f"{show_memory(max(0, left))} of memory not booked, {show_memory(needed)} needed"


def _no_cards(state: AgentState, spec: ShardSpec) -> str:
    """Which card of a shard cannot take it, and why; empty = all can, or nobody knows."""
    known = None if state.cards is None else {gpu.uuid: gpu for gpu in state.cards}
    for uuid in spec.gpus:
        if said := state.strayed(uuid):
            return f"GPU {uuid} cannot be used: {said}"
        if known is not None and uuid not in known:
            return f"there is no GPU {uuid} here"
        if known is not None and (said := _crowded(known[uuid], spec)):
            return said
    return ""


def _crowded(gpu: Gpu, spec: ShardSpec) -> str:
    """Why a card cannot take its part of a shard; empty = it can, or nobody knows."""
    if not gpu.healthy:
        return f"GPU {gpu.uuid} cannot be used: {gpu.said or 'it is not healthy'}"
    share = spec.profile.gpu_memory_utilization
    if gpu.takes(share):
        return ""
    needed, left = round(gpu.memory_total * share), show_memory(max(0, gpu.memory_total - gpu.foreign))
    return f"GPU {gpu.uuid} has {left} free, {show_memory(needed)} needed: {gpu.strangers}"


def _start(state: AgentState, command: messages.Start, now: float) -> Step:
    kept = state.shards.get((command.replica, command.rank))
    if kept is None:
        return state, (_unknown(command.replica, command.rank),)
    if kept.spec.generation != command.generation or kept.state != "held":
        return state, (_report(kept, now),)
    if refusal := _no_cards(state, kept.spec):  # somebody came while its weights did
        return _fail(state, [kept], f"refused: {refusal}", now)
    started = _moved(kept, "starting", now, deadline=now + kept.spec.profile.start_deadline, swept=False)
    return _put(state, [started]), (Launch(kept.spec, kept.beyond), _report(started, now))


def _stop(state: AgentState, command: messages.Stop, now: float) -> Step:
    kept = state.shards.get((command.replica, command.rank))
    if kept is None:
        return state, (_unknown(command.replica, command.rank),)
    if kept.spec.generation != command.generation or kept.state == "stopping":
        return state, (_report(kept, now),)
    reason = kept.reason if kept.state == "failed" else command.because
    stopping = _moved(kept, "stopping", now, deadline=None, reason=reason)
    if stopping.swept:
        return _gone(state, kept, stopping, now)
    # A failed shard is being swept already: the Swept on its way ends it.
    terminate = () if kept.state == "failed" else (Terminate(kept.spec.key, command.grace),)
    return _put(state, [stopping]), (*terminate, _report(stopping, now))


def _gone(state: AgentState, before: Kept, stopping: Kept, now: float) -> Step:
    gone = _moved(stopping, "gone", now, reason=stopping.reason)
    key, name = gone.spec.key, gone.spec.cache_name
    left = {other: kept for other, kept in state.shards.items() if other != key}
    after = dataclasses.replace(state, shards=left)
    last = before.state in ("assigned", "fetching") and not _waiting(after, name)
    release = (Release(name),) if last else ()
    return after, (*release, Forget(key), _report(gone, now))


# --- what happens here -----------------------------------------------------------------------


def _launched(state: AgentState, key: ShardKey, pid: int, now: float) -> Step:
    kept = state.shards.get(key)
    if kept is None or kept.swept or kept.pid == pid:
        return state, ()
    running = dataclasses.replace(kept, pid=pid)
    return _put(state, [running]), (_report(running, now),)


def _reached(state: AgentState, key: ShardKey, reached: Literal["started", "ready"], now: float) -> Step:
    before = ("starting",) if reached == "started" else ("starting", "started")
    ready = [kept for kept in _alive(state, key) if kept.state in before]
    moved = [
        _moved(kept, reached, now, deadline=None if reached == "ready" else kept.deadline) for kept in ready
    ]
    return _put(state, moved), tuple(_report(kept, now) for kept in moved)


def _fail(state: AgentState, shards: Iterable[Kept], said: str, now: float) -> Step:
    commands: list[Command] = []
    for kept in shards:
        failed = _moved(kept, "failed", now, deadline=None, reason=said)
        state = _remembered(_put(state, [failed]), failed, now)
        if not kept.swept:
            commands.append(Sweep(kept.spec.key))
        commands.append(_report(failed, now))
    return state, tuple(commands)


def _swept(state: AgentState, key: ShardKey, now: float) -> Step:
    kept = state.shards.get(key)
    if kept is None or kept.state not in ("failed", "stopping"):
        return state, ()
    swept = dataclasses.replace(kept, swept=True, pid=0)
    if kept.state == "stopping":
        return _gone(state, kept, swept, now)
    return _put(state, [swept]), ()


def _counted(state: AgentState, key: ShardKey, idle: bool, now: float) -> Step:
    """A drain may wait for this word: it is reported when it changes, not with the next heartbeat."""
    changed = [dataclasses.replace(kept, idle=idle) for kept in _alive(state, key) if kept.idle is not idle]
    return _put(state, changed), tuple(_report(kept, now) for kept in changed)


def _graded(state: AgentState, key: ShardKey, slow: bool, now: float) -> Step:
    changed = [dataclasses.replace(kept, slow=slow) for kept in _alive(state, key) if kept.slow is not slow]
    return _put(state, changed), tuple(_report(kept, now) for kept in changed)


def _noted(state: AgentState, key: ShardKey, said: str, where: tuple[State, ...], now: float) -> Step:
    kept = state.shards.get(key)
    if kept is None or kept.state not in where or kept.reason == said:
        return state, ()
    noted = dataclasses.replace(kept, reason=said)
    return _put(state, [noted]), (_report(noted, now),)


def _adopted(state: AgentState, event: Adopted, now: float) -> Step:
    if event.spec.key in state.shards:
        return state, ()
    since, begun = now - event.stands, now - event.age
    deadline = None if event.state == "ready" else begun + event.spec.profile.start_deadline
    kept = Kept(
        event.spec,
        event.state,
        since,
        pid=event.pid,
        adopted=True,
        deadline=deadline,
        swept=False,
        beyond=event.beyond,
    )
    return _put(state, [kept]), (_report(kept, now),)


def _undescribed(state: AgentState, event: Undescribed) -> Step:
    """Nothing is done yet: whoever could describe them has not spoken."""
    return dataclasses.replace(state, orphans=event.orphans, left=event.left), ()


def _heard(state: AgentState) -> Step:
    """Whoever could still have described the orphans has spoken: they end."""
    ending = dataclasses.replace(state, orphans=(), ending=(*state.ending, *state.orphans))
    return ending, tuple(EndOrphan(stray.cookie, stray.cards) for stray in state.orphans)


def _orphan_ended(state: AgentState, cookie: str) -> Step:
    """Its cards are free, which no report of a shard says."""
    ending = tuple(stray for stray in state.ending if stray.cookie != cookie)
    left = tuple(stray for stray in state.left if stray.cookie != cookie)
    return dataclasses.replace(state, ending=ending, left=left), (Recount(),)


def _tick(state: AgentState, now: float) -> Step:
    healed = {
        (kept.spec.model, kept.spec.generation) for kept in _healing(state) if now >= _healed_at(state, kept)
    }
    left = {key: failed for key, failed in state.failed.items() if key not in healed}
    state = dataclasses.replace(state, failed=left) if healed else state
    commands: tuple[Command, ...] = ()
    for kept in list(state.shards.values()):
        if kept.deadline is not None and now >= kept.deadline:
            limit = show_seconds(kept.spec.profile.start_deadline)
            waited = f": {kept.reason}" if kept.reason else ""
            said = f"not ready {limit} after its start (start_deadline); it was {kept.state}{waited}"
            state, more = _fail(state, [kept], said, now)
            commands += more
    return state, commands


# --- pieces ----------------------------------------------------------------------------------


def _moved(
    kept: Kept,
    to: State,
    now: float,
    *,
    deadline: float | None = None,
    reason: str = "",
    swept: bool | None = None,
) -> Kept:
    assert to in NEXT[kept.state], f"{kept.state} → {to} is no transition of a shard"
    return dataclasses.replace(
        kept,
        state=to,
        since=now,
        reason=reason,
        deadline=deadline,
        swept=kept.swept if swept is None else swept,
        idle=kept.idle if to in ALIVE else None,
        slow=kept.slow and to in ALIVE,
        served=now - kept.since if to == "failed" and kept.state in SERVED else kept.served,
    )


def _all(state: AgentState, shards: Iterable[Kept], to: State, now: float) -> Step:
    moved = [_moved(kept, to, now) for kept in shards]
    return _put(state, moved), tuple(_report(kept, now) for kept in moved)


def _put(state: AgentState, shards: Iterable[Kept]) -> AgentState:
    changed = {kept.spec.key: kept for kept in shards}
    return dataclasses.replace(state, shards={**state.shards, **changed}) if changed else state


def _barred(gpu: Gpu) -> str:
    """Who of others keeps a card from taking anything, in words; empty = nobody."""
    return gpu.strangers if any(holder.bars for holder in gpu.holders) else ""


def _holding(state: AgentState) -> list[Kept]:
    return [kept for kept in state.shards.values() if not kept.refused]


def _alive(state: AgentState, key: ShardKey) -> list[Kept]:
    kept = state.shards.get(key)
    return [kept] if kept is not None and kept.state in ALIVE else []


def _waiting(
    state: AgentState, cache_name: str, states: tuple[State, ...] = ("assigned", "fetching")
) -> list[Kept]:
    return [
        kept for kept in state.shards.values() if kept.state in states and kept.spec.cache_name == cache_name
    ]


def _healing(state: AgentState) -> list[Kept]:
    """Ready shards whose (model, generation) has failures to clear."""
    if not state.failed:
        return []
    return [
        kept
        for kept in state.shards.values()
        if kept.state == "ready" and (kept.spec.model, kept.spec.generation) in state.failed
    ]


def _healed_at(state: AgentState, kept: Kept) -> float:
    """When it was Ready for long enough since the newest failure, its own or a sibling's."""
    failed = state.failed[kept.spec.model, kept.spec.generation]
    return max(kept.since, failed.at) + state.limits.reset_after


def _remembered(state: AgentState, ended: Kept, now: float) -> AgentState:
    key = (ended.spec.model, ended.spec.generation)
    count = state.failed[key].count + 1 if key in state.failed else 1
    # The newest goes last, so that the bound drops the oldest.
    others = [(other, failed) for other, failed in state.failed.items() if other != key]
    kept = others[-(state.limits.failures - 1) :] if state.limits.failures > 1 else []
    newest = Failed(count, now, ended.reason, ended.served)
    return dataclasses.replace(state, failed={**dict(kept), key: newest})


def _report(kept: Kept, now: float) -> Report:
    return Report((kept.status(now),))


def _unknown(replica: str, rank: int) -> Report:
    return Report((ShardStatus(replica, rank, "gone"),))
