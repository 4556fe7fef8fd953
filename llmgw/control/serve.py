"""The control plane process: builds everything it is made of, runs it, and takes it down in order.

Called by `llmgw serve` and, in one process with the others, by `llmgw up`.
"""

import asyncio
import collections
import dataclasses
import importlib.metadata
import logging
import pathlib
from collections.abc import Callable
from typing import Literal

from llmgw.catalog.hub import Hub
from llmgw.catalog.model import Catalog
from llmgw.control.about import About
from llmgw.control.adoption import Adoption
from llmgw.control.api import Api, nothing_followed
from llmgw.control.applying import Applying
from llmgw.control.asking import Asking
from llmgw.control.checking import Checking
from llmgw.control.clocks import Clocks
from llmgw.control.collecting import Collecting
from llmgw.control.commits import Commits
from llmgw.control.doors import names
from llmgw.control.fleet_route import FleetApi
from llmgw.control.hands import Hands
from llmgw.control.hands_api import HandsApi
from llmgw.control.holding import Rules
from llmgw.control.joining import Joining
from llmgw.control.journal import Journal
from llmgw.control.keeping import Keeping
from llmgw.control.knowledge import Bounds, Knowledge
from llmgw.control.logs import Logs
from llmgw.control.loop import Loop
from llmgw.control.measuring import Measuring
from llmgw.control.metrics import metrics
from llmgw.control.peers import Peer, Peers
from llmgw.control.recording import Recording
from llmgw.control.rostering import FORGOTTEN_AFTER, Rostering
from llmgw.control.settling import Pace
from llmgw.control.store import Store
from llmgw.control.switch import Switch
from llmgw.control.token_routes import TokenRoutes
from llmgw.control.tokens import Tokens
from llmgw.control.translate import agent_event, claimed_twice, gateway_event, not_known, order, own_words
from llmgw.control.trees import Directory, work_tree
from llmgw.control.watch import Watch
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.routes import Routes, epoch_of, first_version
from llmgw.kit.chance import unseeded
from llmgw.kit.clock import Clock, SystemClock
from llmgw.kit.descriptors import limit
from llmgw.kit.hosts import this_host
from llmgw.kit.tasks import Tasks
from llmgw.kit.threads import use_threads
from llmgw.planning.actions import Action
from llmgw.planning.desired import Desired
from llmgw.planning.guards import Limits as GuardLimits
from llmgw.planning.ledger import Ledger
from llmgw.transport.facts import facts_of
from llmgw.transport.listener import Listener
from llmgw.transport.ranges import Limits
from llmgw.transport.scrape import listen
from llmgw.transport.tls import serving
from llmgw.wire import messages

log = logging.getLogger(__name__)

BUILD = importlib.metadata.version("llmgw")

LOOK = Limits(headers=0)
"""A plan needs the numbers of a model, and no more of its weights than their sizes."""

LONGEST_FAREWELL = 180.0
"""Seconds that `leave` waits for engines to drain and stop."""


@dataclasses.dataclass(frozen=True, slots=True)
class Following:
    """Which catalog is followed, how, and how patiently. `ref` is what commits are read of."""

    path: pathlib.Path
    watch: Literal["commits", "files"]
    sync: Literal["auto", "manual"] = "manual"
    ref: str = "HEAD"
    pace: Pace = dataclasses.field(default_factory=Pace)


def usual_watch(path: pathlib.Path) -> Literal["commits", "files"]:
    """How a catalog at `path` is followed where nobody says it: by commits inside a git work tree."""
    return "commits" if work_tree(path) is not None else "files"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Where it listens, where it keeps its few files, what it follows, and every timer.

    `hosts` are further names that the API may be asked by, beside addresses and `host`. `tls` is a
    certificate chain and its key. With `tokens` agents, gateways and the CLI need one each.
    `metrics` is where Prometheus finds them. `guards` are
    the limits of what may be adopted without a word.
    """

    state_dir: pathlib.Path
    host: str = "127.0.0.1"
    port: int = 7600
    cluster: str = "llmgw"
    heartbeat: float = 5.0
    timers: Timers = dataclasses.field(default_factory=Timers)
    following: Following | None = None
    hub: Hub = dataclasses.field(default_factory=Hub)
    bounds: Bounds = dataclasses.field(default_factory=Bounds)
    hosts: tuple[str, ...] = ()
    tls: tuple[pathlib.Path, pathlib.Path] | None = None
    tokens: bool = False
    metrics: tuple[str, int] | None = None
    guards: GuardLimits = dataclasses.field(default_factory=GuardLimits)


async def run(
    settings: Settings,
    *,
    ready: Callable[[str, int], None] | None = None,
    follow: asyncio.Event | None = None,
    leave: asyncio.Event | None = None,
) -> None:
    """Serve until cancelled. `ready(host, port)` is called once it listens. Raises errors.Failed.

    The catalog is followed at once, or from when `follow` is set. When `leave` is set, everything is drained
    and stopped first, without touching the adopted revision: the end of an `llmgw up`, where the engines
    are not meant to outlive it.
    """
    use_threads()
    clock = SystemClock()
    with Store(settings.state_dir).held() as store:
        plane = _Plane(settings, store, clock)
        try:
            host, port = await plane.start()
            log.info(
                "control plane of %s listens on %s:%d, epoch %d", settings.cluster, host, port, plane.epoch
            )
            if ready is not None:
                ready(host, port)
            plane.follow(follow)
            await plane.until(leave)
        finally:
            await plane.close()


class _Plane:
    """The parts of one control plane, wired."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.epoch = store.next_epoch(clock.wall())
        self.tasks = Tasks()
        self._settings, self._store, self._clock = settings, store, clock
        self._left = asyncio.Event()
        self._scrape: asyncio.Server | None = None
        self._journal = Journal(clock)
        self._keeping = Keeping(self._journal)
        self._rostering = Rostering(store, self._keeping, clock)
        chance = unseeded()
        self._loop = Loop(
            desired=Desired(),
            fleet=self._rostering.fleet(),
            ledger=Ledger(routes=Routes(version=first_version(self.epoch))),
            timers=settings.timers,
            clock=clock,
            chance=chance,
            journal=self._journal,
            dispatch=self._dispatch,
            publish=self._publish,
        )
        self._loop.prepare = self._rostering.write
        tokens = Tokens(settings.state_dir, clock.wall)
        if settings.tokens:
            tokens.rows()  # whoever could let nobody in does not start
        token_routes = TokenRoutes(tokens, required=settings.tokens)
        knowledge = Knowledge(lambda source: facts_of(source, settings.hub, LOOK), clock, settings.bounds)
        self._measuring = Measuring()
        self._recording = Recording(store, self._loop, self._journal, self._keeping, clock)
        self._switch = Switch(store, self._journal, self._keeping, clock)
        self._adoption = Adoption(
            store,
            self._loop,
            self._journal,
            clock,
            chance,
            knowledge,
            limits=settings.guards,
            recording=self._recording,
            measuring=self._measuring,
            cluster=settings.cluster,
        )
        self._peers = Peers(
            self.epoch,
            lambda: self._adoption.number,
            self._said,
            self._closed,
            clock,
            heartbeat=settings.heartbeat,
            longest=settings.timers.unreachable / 3,
            objection=self._objection,
            joining=Joining(tokens, required=settings.tokens),
        )
        self._asking = Asking(self._peers.send)
        self._asking_gateways = Asking(self._peers.ask_gateway)
        self._collecting = Collecting(self._asking)
        self._logs = Logs(self._loop, self._asking)
        self._hands = Hands(store, self._loop, self._journal, self._keeping, clock, forget=self._forget_node)
        self._watch = self._watching()
        self._following: asyncio.Task[None] | None = None
        self._host = this_host()
        followed = self._watch.report if self._watch is not None else nothing_followed
        self._about = About(
            self._loop,
            self._adoption,
            store,
            self._journal,
            knowledge,
            clock,
            about={"cluster": settings.cluster, "build": BUILD},
            followed=followed,
            files=lambda: self._rostering.too_many(limit()),
        )
        api = Api(
            self._loop,
            self._adoption,
            self._journal,
            self._collecting,
            clock,
            cluster=settings.cluster,
            epoch=self.epoch,
            build=BUILD,
            followed=followed,
            held=lambda: self._switch.held,
            hosts=names(settings.host, *settings.hosts),
            door=token_routes.refusal,
            more={
                **token_routes.routes,
                **Applying(
                    self._adoption, store, self._recording, self._switch, self._journal, self.epoch
                ).routes,
                **FleetApi(self._adoption, clock).routes,
                **HandsApi(self._hands, self._adoption, self._loop, self._journal, clock, chance).routes,
                **self._logs.routes,
                **self._about.routes,
                **Checking(self._loop, self._asking).routes,
                **Clocks(self._peers, self._asking, self._asking_gateways, clock).routes,
            },
        )
        self._listener = Listener(self._peers.serve, api.answer, door=api.refusal)

    async def start(self) -> tuple[str, int]:
        self._adoption.resume()
        self._recording.resume()
        self._switch.resume()
        self._hands.resume()
        if said := self._rostering.too_many(limit()):
            log.warning("%s: raise the limit (LimitNOFILE=, ulimit -n)", said)
        tls = serving(*self._settings.tls) if self._settings.tls is not None else None
        where = await self._listener.start(self._settings.host, self._settings.port, tls)
        self._scrape = await listen(self._page, self._settings.metrics)
        self.tasks.start("loop", self._loop.run())
        self.tasks.start("pulse", self._loop.pulse())
        self.tasks.start("housekeeping", self._housekeeping())
        return where

    def _watching(self) -> Watch | None:
        following = self._settings.following
        if following is None:
            return None
        path = following.path
        watch = Watch(
            Commits(path, following.ref) if following.watch == "commits" else Directory(path, self._clock),
            Rules(following.watch, following.sync, str(path), BUILD),
            following.pace,
            self._adoption,
            self._store,
            self._journal,
            self._clock,
            held=lambda: self._switch.held,
        )
        self._switch.released = watch.look_now
        return watch

    def follow(self, when: asyncio.Event | None) -> None:
        """Follow the catalog, from when `when` is set, if it is given."""
        if self._watch is not None:
            self._following = self.tasks.start("watch", self._follow(self._watch, when))

    async def _follow(self, watch: Watch, when: asyncio.Event | None) -> None:
        if when is not None:
            await when.wait()
        await watch.run(self.tasks)

    async def until(self, leave: asyncio.Event | None) -> None:
        """Run until a part fails, or until `leave` is set and every engine has stopped."""
        if leave is None:
            await self.tasks.wait()
            return
        self.tasks.start("leave", self._leave(leave))
        await self.tasks.wait_or(self._left)

    async def _leave(self, leave: asyncio.Event) -> None:
        await leave.wait()
        if self._following is not None:
            self._following.cancel()
        self._loop.adopt(Desired(catalog=Catalog(models={}, profiles={})))
        limit = self._clock.now() + LONGEST_FAREWELL
        while self._loop.fleet.shards and self._clock.now() < limit:
            await self._journal.wait(self._journal.last, 1.0)
        self._left.set()

    def _page(self) -> bytes:
        peers = collections.Counter(peer.kind for peer in self._peers)
        followed = self._watch.report() if self._watch is not None else None
        return metrics(self._loop, self.epoch, self._adoption.number, peers, followed)

    async def close(self) -> None:
        self._rostering.close(self._loop.fleet, self._loop.ledger.lost, self._doors())
        if self._scrape is not None:
            self._scrape.close()
        await self._listener.close()
        await self.tasks.close()

    def _dispatch(self, action: Action) -> bool:
        self._logs.ordered(action)
        command = order(action)
        return command is None or self._peers.send(*command)

    def _publish(self, routes: Routes) -> None:
        self._peers.publish(routes)

    def _objection(self, _: Peer, message: messages.Register | messages.Subscribe) -> str:
        return claimed_twice(message, self._loop.glance) if isinstance(message, messages.Register) else ""

    def _said(self, peer: Peer, message: messages.Up) -> None:
        match message:
            case messages.Heartbeat(idle=()):  # most of what a fleet says
                self._loop.hear(events.Heartbeat(peer.id))
            case messages.Result():
                self._asking.answered(peer.id, message)
            case _:
                self._news(peer, message)

    def _news(self, peer: Peer, message: messages.Up) -> None:
        if isinstance(message, messages.Subscribe) and epoch_of(message.version) > self.epoch:
            self._give_way(epoch_of(message.version), f"gateway {peer.name} serves by a table of")
        fleet = self._loop.glance
        event = (
            agent_event(peer.id, own_words(peer.id, message, fleet))
            if peer.kind == "agent"
            else gateway_event(peer.id, message, self._host)
        )
        if strange := not_known(peer.id, message, fleet):
            log.warning("node %s is asked to register again: %s", peer.name, strange)
            self._peers.begin_again(peer.id, strange)
        if event is not None:
            self._measuring.saw(fleet, event, self._clock.now())
            self._loop.hear(event)
        if isinstance(message, messages.Register):
            self._hands.returned(peer.id)
            self._logs.known(spec for spec, _ in message.shards)
        for seq, wall in message.clocks if isinstance(message, messages.Load) else ():
            self._asking_gateways.answered(peer.id, messages.Result(seq=seq, data={"wall": wall}))
        if isinstance(message, messages.Subscribe):
            self._about.met(peer.id, message)
        if isinstance(message, messages.Register | messages.Subscribe | messages.Leave):
            self._rostering.met(peer.kind, peer.id, peer.name)

    def _closed(self, peer: Peer, said: str) -> None:
        log.info("%s %s at %s is gone: %s", peer.kind, peer.name, peer.address, said)
        if peer.kind == "gateway":
            self._asking_gateways.left(peer.id)
        if peer.kind == "agent":
            self._asking.left(peer.id)
            self._loop.hear(events.Disconnected(peer.id))

    def _forget_node(self, node: str) -> None:
        self._rostering.forget(node)
        self._keep_roster()

    def _keep_roster(self) -> None:
        self._rostering.keep(self._loop.fleet, self._loop.ledger.lost, self._doors())

    def _doors(self) -> list[str]:
        return [peer.id for peer in self._peers if peer.kind == "gateway"]

    def _give_way(self, epoch: int, who: str) -> None:
        """Somebody obeys a control plane of a higher epoch: command nobody any more."""
        if not self._loop.fenced:
            self._loop.fence(
                f"cannot command: {who} epoch {epoch}, this is {self.epoch};"
                " stop the other control plane, or restart this one to take over"
            )
            self._keeping.keep("the epoch", lambda: self._store.raise_epoch(epoch))

    async def _housekeeping(self) -> None:
        """Keep what is owed; give way to a newer control plane at once; forget who stayed away for a day."""
        while True:
            await asyncio.sleep(1.0)
            self._keeping.again()
            self._switch.expire()
            self._recording.read_on()
            self._peers.check_tokens()
            if self._rostering.owes(self._loop.ledger.lost):
                self._keep_roster()
            if self._peers.outranked:
                self._give_way(self._peers.outranked, "the nodes obey")
            now = self._clock.now()
            for name, gateway in list(self._loop.fleet.gateways.items()):
                if now - gateway.last_seen > FORGOTTEN_AFTER.total_seconds():
                    self._loop.hear(events.GatewayForgotten(name))
                    self._keep_roster()
