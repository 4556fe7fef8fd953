"""Tables that change, control planes that go, and the gateway's own stop: no request is lost by any of it."""

import asyncio
import dataclasses
import pathlib

import pytest

from llmgw.errors import Failed
from llmgw.fleet.routes import RoutedModel, Routes
from llmgw.gateway import serve
from tests.gateway.engine import STREAM, chunk, engines, event, hangs, says, waits_for
from tests.gateway.world import World, gateway, post, routed, running, story, until

pytestmark = pytest.mark.usefixtures("loop")

CHAT = {"model": "a", "messages": []}


async def _ask_until(world: World, stop: asyncio.Event, seen: list[int]) -> None:
    while not stop.is_set():
        seen.append((await world.ask(CHAT)).status)


def test_a_replica_drains_under_load_without_a_failure(tmp_path: pathlib.Path) -> None:
    """Clients never stop asking while one replica drains and goes: no failure, and none reaches it afterwards."""

    async def tell() -> None:
        async with (
            engines(a1=says("one"), a2=says("two")) as [one, two],
            gateway(tmp_path, routed(one.endpoint(), two.endpoint())) as world,
        ):
            stop, seen = asyncio.Event(), list[int]()
            clients = [asyncio.ensure_future(_ask_until(world, stop, seen)) for _ in range(4)]
            await until(lambda: len(one.asked) > 20, "the draining one had requests before")
            version = await world.control.publish(one.endpoint(draining=True), two.endpoint())
            await until(lambda: drained(world, version, one.replica), "it is drained")
            had = len(one.asked)
            one.refuse()
            after = len(seen)
            await until(lambda: len(seen) > after + 50, "clients went on")
            await world.control.publish(two.endpoint())
            after = len(seen)
            await until(lambda: len(seen) > after + 50, "and on")
            stop.set()
            await asyncio.gather(*clients)
            assert set(seen) == {200}
            assert len(one.asked) == had

    story(tell)


def drained(world: World, version: int, replica: str) -> bool:
    """What the control plane would conclude."""
    return world.control.acked(version) and replica not in dict(world.control.last.in_flight)


def test_an_acknowledgement_counts_what_is_still_on_its_way(tmp_path: pathlib.Path) -> None:
    """A request chosen by the old table, its answer not begun, stands in the first report that names the new one."""

    async def tell() -> None:
        gate = asyncio.Event()
        async with (
            engines(a1=waits_for(gate, says("late"))) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            asking = asyncio.ensure_future(world.ask(CHAT))
            await until(lambda: engine.asked, "the request is at the engine")
            version = await world.control.publish(engine.endpoint(draining=True))
            await until(lambda: world.control.acked(version), "the new table is acknowledged")
            first = next(load for load in world.control.loads if load.acked == version)
            assert dict(first.in_flight) == {"a/1": 1}
            assert (await world.ask(CHAT)).status == 503
            gate.set()
            assert (await asking).status == 200
            await until(lambda: drained(world, version, "a/1"), "it is drained")

    story(tell)


def test_a_retry_obeys_the_table_of_its_own_moment(tmp_path: pathlib.Path) -> None:
    """While a request is at one engine, the other begins to drain; the first dies: the second is not asked."""

    async def tell() -> None:
        async with (
            engines(a1=hangs(), a2=hangs()) as both,
            gateway(tmp_path, routed(*(e.endpoint() for e in both))) as world,
        ):
            asking = asyncio.ensure_future(world.ask(CHAT))
            await until(lambda: any(e.asked for e in both), "one has it")
            busy, other = sorted(both, key=lambda e: -len(e.asked))
            version = await world.control.publish(busy.endpoint(), other.endpoint(draining=True))
            await until(lambda: drained(world, version, other.replica), "the other is drained")
            busy.refuse()
            assert (await asking).status == 502
            assert other.asked == []

    story(tell)


def test_the_last_request_of_a_drain_is_told_at_once(tmp_path: pathlib.Path) -> None:
    """The report that nothing is left follows the last answer, not the next beat."""

    async def tell() -> None:
        gate = asyncio.Event()
        slow = dataclasses.replace(serve.PACE, report=60.0)
        async with (
            engines(a1=waits_for(gate, says("late"))) as [engine],
            gateway(tmp_path, routed(engine.endpoint()), pace=slow) as world,
        ):
            asking = asyncio.ensure_future(world.ask(CHAT))
            await until(lambda: engine.asked, "the request is at the engine")
            version = await world.control.publish(engine.endpoint(draining=True))
            await until(lambda: world.control.acked(version), "acknowledged at once as well")
            gate.set()
            await asking
            await until(lambda: drained(world, version, "a/1"), "told at once", within=2.0)
            assert dict(world.control.last.green)["a/1"] < 2.0

    story(tell)


def test_a_gateway_serves_and_starts_without_its_control_plane(tmp_path: pathlib.Path) -> None:
    """The control plane dies: requests go on. The gateway restarts meanwhile: it serves by the table it kept."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine]:
            async with gateway(tmp_path, routed(engine.endpoint())) as world:
                await world.control.stop()
                assert (await world.ask(CHAT)).status == 200
                await world.control.start()
                await until(lambda: len(world.control.subscribed) == 2, "it came back")
                assert world.control.subscribed[1].version == 1
            settings = serve.Settings(
                state_dir=tmp_path / "gateway", port=0, metrics_port=0, control_port=1, access=len
            )
            async with running(settings) as (bound, _, _):
                alone = dataclasses.replace(world, port=bound.port)
                assert (await alone.ask(CHAT)).status == 200

    story(tell)


def test_a_damaged_table_is_no_reason_not_to_start(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was kept cannot be read: it is said, and the gateway waits for a new one."""

    async def tell() -> None:
        (tmp_path / "gateway").mkdir()
        (tmp_path / "gateway" / "routes.json").write_text('{"version": "half')
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            assert (await world.ask(CHAT)).status == 200

    story(tell)
    assert "cannot use the routing table" in caplog.text


def test_nonsense_from_the_control_plane_costs_only_the_line(tmp_path: pathlib.Path) -> None:
    """A table that cannot be read is not adopted: the gateway says so, connects anew, and serves on."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            await world.control.say(b'{"kind": "routes", "routes": {"version": "many"}}')
            await until(lambda: len(world.control.subscribed) == 2, "it subscribed again")
            assert (await world.ask(CHAT)).status == 200
            await world.control.say(b'{"kind": "of a newer release"}')
            version = await world.control.publish(engine.endpoint())
            await until(lambda: world.control.acked(version), "what it does not know it lets pass")
            assert len(world.control.subscribed) == 2

    story(tell)


def test_a_refusal_is_said_once_and_asked_again(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another gateway has the name: said once, however often it is tried; when the name is free, it is subscribed."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            world.control.refusal = "gateway 'gw-1' is refused: another one has the name"
            await world.control.say(b"nonsense")
            await until(lambda: len(world.control.subscribed) > 4, "it knocks again")
            assert len({subscribe.instance for subscribe in world.control.subscribed}) == 1
            assert (await world.ask(CHAT)).status == 200
            world.control.refusal = ""
            version = await world.control.publish(engine.endpoint())
            await until(lambda: world.control.acked(version), "subscribed again")
            assert "control_connected 1" in await world.metrics()

    story(tell)
    assert caplog.text.count("another one has the name") == 1


def test_a_partial_table_takes_nothing_away(tmp_path: pathlib.Path) -> None:
    """A restarted control plane that has heard half of its nodes adds to the table; the rest stays routed."""

    async def tell() -> None:
        async with (
            engines(a1=says("one"), b1=says("other")) as [one, other],
            gateway(tmp_path, routed(one.endpoint())) as world,
        ):
            world.control.routes = Routes(1, partial=True, models=(RoutedModel("b"),))
            version = await world.control.publish(other.endpoint())
            await until(lambda: world.control.acked(version), "adopted")
            assert (await world.ask(CHAT)).status == 200
            assert (await world.ask({"model": "b"})).status == 200
            world.control.routes = Routes(version, models=(RoutedModel("b"),))
            await world.control.publish(other.endpoint())
            await until(lambda: world.control.acked(version + 1), "adopted")
            assert (await world.ask(CHAT)).status == 404

    story(tell)


def test_an_older_table_is_not_adopted(tmp_path: pathlib.Path) -> None:
    """A table that was overtaken on its way changes nothing; what is served by is acknowledged again."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            await world.control.publish(engine.endpoint())
            world.control.routes = dataclasses.replace(world.control.routes, version=0)
            told = len(world.control.loads)
            assert await world.control.publish() == 1
            await until(lambda: len(world.control.loads) > told, "answered")
            assert world.control.last.acked == 2
            assert (await world.ask(CHAT)).status == 200

    story(tell)


def test_a_stop_lets_what_is_under_way_end(tmp_path: pathlib.Path) -> None:
    """Told to stop: the listener is closed, a kept connection gets 503 and a close, the stream ends whole, Leave is said."""

    async def tell() -> None:
        gate = asyncio.Event()
        async with (
            engines(a1=says("x"), b1=waits_for(gate, says("a long story"))) as [one, other],
            gateway(tmp_path, routed(one.endpoint(), other.endpoint())) as world,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(post(CHAT))
            assert b"200" in await reader.readuntil(b"}")
            asking = asyncio.ensure_future(world.ask({"model": "b", "stream": True}))
            await until(lambda: other.asked, "a stream is under way")
            world.stop.set()
            await refused(world.port)
            writer.write(post(CHAT))
            late = await reader.read()
            assert b"503" in late
            assert b"connection: close" in late
            writer.close()
            assert world.control.left == []
            gate.set()
            answer = await asking
            assert answer.ended
            assert answer.body.endswith(b"[DONE]\n\n")
            await world.running
            await until(lambda: world.control.left == ["gw-1"], "it said good-bye")

    story(tell)


async def refused(port: int) -> None:
    """Until nobody listens there."""
    for _ in range(1000):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        writer.close()
        await asyncio.sleep(0.005)
    raise AssertionError(f"port {port} still listens")


def test_a_stop_has_a_limit_and_says_so_in_the_stream(tmp_path: pathlib.Path) -> None:
    """A stream that outlives the drain limit ends with an error event, no [DONE], and is logged as cut."""

    async def tell() -> None:
        async with (
            engines(a1=hangs(STREAM, chunk(event("once")))) as [engine],
            gateway(tmp_path, routed(engine.endpoint()), drain=0.1) as world,
        ):
            asking = asyncio.ensure_future(world.ask({**CHAT, "stream": True}))
            await until(lambda: engine.asked, "a stream is under way")
            world.stop.set()
            answer = await asking
            assert not answer.ended
            assert "this gateway is stopping" in answer.events[-1]
            await world.running
            assert "end=cut" in "".join(world.log)

    story(tell)


def test_two_gateways_share_a_port(tmp_path: pathlib.Path) -> None:
    """With SO_REUSEPORT a new gateway takes over from an old one; without it the second is refused with a way out."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine]:
            routes = routed(engine.endpoint())
            async with (
                gateway(tmp_path / "1", routes, reuse_port=True) as old,
                gateway(tmp_path / "2", routes, reuse_port=True, port=old.port) as new,
            ):
                old.stop.set()
                await old.running
                assert {(await new.ask(CHAT)).status for _ in range(10)} == {200}
                with pytest.raises(Failed, match="address already in use"):
                    async with gateway(tmp_path / "3", routes, port=new.port):
                        raise AssertionError("two on one port")

    story(tell)
