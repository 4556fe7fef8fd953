"""A model that sleeps for want of requests: the first one wakes it, and waits a little for it."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import pytest

from llmgw.catalog.model import Scaling
from llmgw.control.translate import gateway_event
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardKey, ShardStatus, State
from llmgw.gateway.waiting import Patience
from llmgw.planning.actions import Assign, Start, Stop
from llmgw.planning.desired import Desired
from llmgw.wire import messages
from tests.control.plane import Plane, Ticking
from tests.gateway.engine import Engine, engines, says
from tests.gateway.world import World, gateway, post, routed, story, until
from tests.planning.story import a_catalog, a_model, a_profile

pytestmark = pytest.mark.usefixtures("loop")

CHAT = {"model": "a", "messages": []}
SLEEPS = {"wakes": True, "retry_after": 42.0}


def queued(world: World) -> dict[str, int]:
    """What the gateway last told of requests that nobody serves."""
    return dict(world.control.last.queued)


def test_a_request_waits_for_the_replica_it_asks_for(tmp_path: pathlib.Path) -> None:
    """It is reported while it waits, answered by what comes, and then it waits no more."""

    async def tell() -> None:
        async with engines(a1=says("awake")) as [engine], gateway(tmp_path, routed(a=SLEEPS)) as world:
            asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(3)]
            await until(lambda: queued(world) == {"a": 3}, "three wait")
            assert 'queued{model="a"} 3' in await world.metrics()
            assert not any(asked.done() for asked in asking)
            await world.control.publish(engine.endpoint())
            answers = await asyncio.gather(*asking)
            assert [(answer.status, answer.json) for answer in answers] == [(200, {"said": "awake"})] * 3
            assert 'queued{model="a"}' not in await world.metrics()

    story(tell)


def test_it_waits_no_longer_than_it_may(tmp_path: pathlib.Path) -> None:
    """Then it is 503 with Retry-After and a reason, and the model stays asked for."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a=SLEEPS), patience=Patience(hold=0.1)) as world:
            answer = await world.ask(CHAT)
            assert (answer.status, answer.headers["retry-after"]) == (503, "42")
            assert "not asked for lately and is being started" in answer.json["error"]["message"]
            await until(lambda: queued(world) == {"a": 1}, "it stays asked for")

    story(tell)


def test_nobody_waits_where_nobody_may_and_yet_it_is_asked_for(tmp_path: pathlib.Path) -> None:
    """Too many waiting, or a wait of nothing: refused at once, counted all the same, and forgotten in time."""

    async def tell() -> None:
        patience = Patience(hold=0.0, recall=0.3)
        async with gateway(tmp_path, routed(a=SLEEPS), patience=patience) as world:
            assert (await world.ask(CHAT)).status == 503
            await until(lambda: queued(world) == {"a": 1}, "it is asked for")
            await until(lambda: queued(world) == {}, "nobody asks any more")
        async with gateway(tmp_path, routed(a=SLEEPS), patience=Patience(most=1)) as world:
            waits = asyncio.ensure_future(world.ask(CHAT))
            await until(lambda: queued(world) == {"a": 1}, "one waits")
            assert (await world.ask(CHAT)).status == 503
            world.stop.set()
            world.control.routes = routed()
            await world.control.publish()
            assert (await waits).status == 503

    story(tell)


def test_a_model_that_is_only_down_makes_nobody_wait(tmp_path: pathlib.Path) -> None:
    """What should be there and is not is 503 at once: no request makes it come any sooner."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a={})) as world:
            assert (await world.ask(CHAT)).status == 503
            await asyncio.sleep(0.2)
            assert queued(world) == {}

    story(tell)


def test_a_fallback_answers_while_the_model_wakes(tmp_path: pathlib.Path) -> None:
    """Nobody waits where somebody answers; the model that was asked for is woken nevertheless."""

    async def tell() -> None:
        sleeps = {**SLEEPS, "fallbacks": ("b",)}
        async with (
            engines(b1=says("instead")) as [other],
            gateway(tmp_path, routed(other.endpoint(), a=sleeps)) as world,
        ):
            assert (await world.ask(CHAT)).json == {"said": "instead"}
            await until(lambda: queued(world) == {"a": 1}, "it is asked for")

    story(tell)


def test_a_client_that_leaves_waits_for_nothing(tmp_path: pathlib.Path) -> None:
    """Its place is free for others, and no engine is asked for nobody."""

    async def tell() -> None:
        patience = Patience(recall=0.1)
        async with (
            engines(a1=says("x")) as [engine],
            gateway(tmp_path, routed(a=SLEEPS), patience=patience) as world,
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(post(CHAT))
            await until(lambda: queued(world) == {"a": 1}, "it waits")
            writer.transport.abort()
            await until(lambda: queued(world) == {}, "it left")
            await world.control.publish(engine.endpoint())
            assert (await world.ask(CHAT)).status == 200
            assert len(engine.asked) == 1

    story(tell)


class Fleet:
    """The control plane's own loop between the gateway and one node that obeys; `ready` lets an engine come up."""

    def __init__(self, directory: pathlib.Path, engine: Engine) -> None:
        timers = Timers(scale_window=1.0, scale_every=0.1, min_ready=0.1)
        self.plane = Plane(directory, clock=Ticking(), timers=timers)
        self.ready = asyncio.Event()
        self._done = [0, 0, 0]
        node = NodeInfo(
            "n0", "n0", engines=(InstalledEngine("llamacpp"),), ports=(engine.port, engine.port + 9)
        )
        self.plane.hears(events.Registered(node))

    @contextlib.asynccontextmanager
    async def beside(self, world: World) -> AsyncIterator[None]:
        """Carry words both ways for as long as the block lasts."""
        running = [asyncio.ensure_future(self.plane.loop.run()), asyncio.ensure_future(self._carry(world))]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _carry(self, world: World) -> None:
        while True:
            loads, tables, orders = world.control.loads, self.plane.published, self.plane.sent
            for load in loads[self._done[0] :]:
                event = gateway_event("gw-1", load)
                assert event is not None
                self.plane.hears(event)
            for routes in tables[self._done[1] :]:
                world.control.routes = routes
                await world.control.say(messages.encode(messages.RoutesUpdate(routes=routes)))
            for action in orders[self._done[2] :]:
                await self._obey(action)
            self._done = [len(loads), len(tables), len(orders)]
            self.plane.hears(events.Heartbeat("n0"))
            await asyncio.sleep(0.01)

    async def _obey(self, action: object) -> None:
        match action:
            case Assign(spec=spec):
                self._says(spec.key, "held")
            case Start(key=key):
                self._says(key, "starting")
                await self.ready.wait()
                self._says(key, "ready")
            case Stop(key=key):
                self._says(key, "gone")

    def _says(self, key: ShardKey, state: State) -> None:
        self.plane.hears(events.Reported("n0", (ShardStatus(*key, state),)))


def test_from_nothing_to_one_and_back(tmp_path: pathlib.Path) -> None:
    """No replica; a request starts one and is answered by it; a quiet window later there is none again."""

    async def tell() -> None:
        async with engines(a1=says("good morning")) as [engine], gateway(tmp_path, routed(a=SLEEPS)) as world:
            fleet = Fleet(tmp_path / "control", engine)
            sleeper = a_model("a", scaling=Scaling(0, 1))
            fleet.plane.loop.adopt(Desired(a_catalog(sleeper, profiles=[a_profile(gpus_per_node=0)])))
            async with fleet.beside(world):
                await asyncio.sleep(0.3)
                assert fleet.plane.sent == []
                asking = asyncio.ensure_future(world.ask(CHAT))
                await until(lambda: any(isinstance(a, Start) for a in fleet.plane.sent), "one is started")
                assert not asking.done()
                fleet.ready.set()
                assert (await asking).json == {"said": "good morning"}
                await until(lambda: fleet.plane.loop.fleet.shards == {}, "it sleeps again")
                assert [type(action).__name__ for action in fleet.plane.sent] == [
                    "Assign", "Start", "Drain", "Stop",
                ]  # fmt: skip
                assert (await world.ask(CHAT)).status == 200
                assert len(engine.asked) == 2

    story(tell)
