"""What is tried again, where, and how often."""

import asyncio
import dataclasses
import pathlib

import pytest

from llmgw.gateway.link import Pace
from llmgw.gateway.upstream import Reach
from llmgw.kit.hosts import this_host
from llmgw.routing.retry import Policy
from tests.gateway.engine import (
    DONE,
    STREAM,
    Asked,
    Behaviour,
    Engine,
    Wire,
    engines,
    hangs,
    plain,
    says,
    sends,
    sends_and_dies,
)
from tests.gateway.world import gateway, post, routed, story, until

pytestmark = pytest.mark.usefixtures("loop")

CHAT = {"model": "a", "messages": []}


def test_a_refused_connection_costs_the_client_nothing(tmp_path: pathlib.Path) -> None:
    """One of two engines is gone: every request is answered, and the dead one is knocked at once, not each time."""

    async def tell() -> None:
        async with (
            engines(a1=says("one"), a2=says("two")) as [one, two],
            gateway(tmp_path, routed(one.endpoint(), two.endpoint())) as world,
        ):
            one.refuse()
            answers = [await world.ask(CHAT) for _ in range(20)]
            assert {answer.status for answer in answers} == {200}
            assert len(two.asked) == 20
            assert 'retries_total{model="a"} 1' in await world.metrics()

    story(tell)


def test_what_cannot_be_connected_to_is_reported_until_it_can(tmp_path: pathlib.Path) -> None:
    """Evidence for the control plane: which replicas are dark from here, and on which machine here is."""

    async def tell() -> None:
        pace = Pace(report=0.05)
        async with (
            engines(a1=says("one"), a2=says("two")) as [one, two],
            gateway(tmp_path, routed(one.endpoint()), policy=Policy(aside=0.0), pace=pace) as world,
        ):
            assert [hello.host for hello in world.control.subscribed] == [this_host()]
            one.refuse()
            assert (await world.ask(CHAT)).status in (502, 503)
            await until(lambda: dict(world.control.last.dark).keys() == {"a/1"}, "it is told")
            moved = dataclasses.replace(two.endpoint(), replica="a/1")
            version = await world.control.publish(moved)
            await until(lambda: world.control.acked(version), "the next table")
            assert (await world.ask(CHAT)).status == 200
            await until(lambda: world.control.last.dark == (), "it is over")

    story(tell)


def test_an_engine_that_dies_before_its_first_byte_is_replaced(tmp_path: pathlib.Path) -> None:
    """Death with no byte, or with a head alone, is invisible: the other replica answers, status 200."""

    async def tell() -> None:
        async with (
            engines(a1=says("one"), a2=says("two")) as both,
            gateway(tmp_path, routed(*(e.endpoint() for e in both)), policy=Policy(aside=0.0)) as world,
        ):
            for said in ((), (STREAM,)):
                dead: list[Asked] = []
                for engine in both:
                    engine.behave = _first_dies(dead, *said)
                answer = await world.ask({**CHAT, "stream": True})
                assert (answer.status, answer.ended, len(dead)) == (200, True, 1)
                assert answer.body.endswith(DONE)

    story(tell)


def _first_dies(dead: list[Asked], *said: bytes) -> Behaviour:
    """Whoever is asked first says this and dies; the others answer."""

    async def behave(asked: Asked, wire: Wire) -> None:
        if dead:
            await says("alive")(asked, wire)
        else:
            dead.append(asked)
            await sends_and_dies(*said)(asked, wire)

    return behave


def test_a_request_that_kills_engines_kills_two(tmp_path: pathlib.Path) -> None:
    """With four replicas and four attempts allowed, the poison reaches two of them and the client gets 502."""

    async def tell() -> None:
        async with (
            engines(**{f"a{n}": sends_and_dies() for n in range(4)}) as four,
            gateway(tmp_path, routed(*(e.endpoint() for e in four)), policy=Policy(attempts=4)) as world,
        ):
            answer = await world.ask(CHAT)
            assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_failed")
            assert sum(len(e.asked) for e in four) == 2

    story(tell)


def test_poison_on_kept_connections_kills_two_as_well(tmp_path: pathlib.Path) -> None:
    """A death on a kept connection looks stale; the engine that is gone when it is tried afresh counts as dead."""

    async def tell() -> None:
        async with (
            engines(**{f"a{n}": says("x") for n in range(4)}) as four,
            gateway(tmp_path, routed(*(e.endpoint() for e in four)), policy=Policy(attempts=4)) as world,
        ):
            while not all(e.asked for e in four):
                await world.ask(CHAT)
            before = sum(len(e.asked) for e in four)
            for engine in four:
                engine.behave = _perishes(engine)
            answer = await world.ask(CHAT)
            assert answer.status == 502
            assert sum(len(e.asked) for e in four) - before == 2

    story(tell)


def _perishes(engine: Engine) -> Behaviour:
    """Takes the whole engine with it."""

    async def behave(asked: Asked, wire: Wire) -> None:
        engine.refuse()

    return behave


def test_a_stale_connection_is_not_a_failure(tmp_path: pathlib.Path) -> None:
    """The only engine closes the kept connection as it is used again: the request goes once more, on a new one."""

    async def tell() -> None:
        async def close_after_one(asked: Asked, wire: Wire) -> None:
            if len(engine.asked) == 2:
                wire.writer.close()
                return
            await sends(plain(200, {}))(asked, wire)

        async with (
            engines(a1=close_after_one) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            assert [(await world.ask(CHAT)).status for _ in range(2)] == [200, 200]
            assert [asked.connection for asked in engine.asked] == [1, 1, 2]
            assert "retries_total{" not in await world.metrics()

    story(tell)


def test_connections_are_kept(tmp_path: pathlib.Path) -> None:
    """Requests in a row use one connection, unless the engine closes it or it grew old."""

    async def tell() -> None:
        async with (
            engines(a1=says("x")) as [engine],
            gateway(tmp_path, routed(engine.endpoint()), reach=Reach(kept=0.2)) as world,
        ):
            for _ in range(5):
                await world.ask(CHAT)
            assert engine.connections == 1
            await until(lambda: not engine.open, "the idle connection is closed")
            engine.behave = sends(plain(200, {}, b"Connection: close"))
            await world.ask(CHAT)
            await world.ask(CHAT)
            assert engine.connections == 3

    story(tell)


def test_busy_engines_are_asked_in_turn_and_their_wait_is_told(tmp_path: pathlib.Path) -> None:
    """503 with Retry-After tries the other; when both are busy, the engine's own answer and wait reach the client."""

    async def tell() -> None:
        busy = sends(plain(503, {"error": {"message": "queue is full"}}, b"Retry-After: 7"))
        async with (
            engines(a1=busy, a2=says("free")) as [one, two],
            gateway(tmp_path, routed(one.endpoint(), two.endpoint())) as world,
        ):
            while not one.asked:
                assert (await world.ask(CHAT)).status == 200
            two.behave = busy
            answer = await world.ask(CHAT)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")
            assert answer.json["error"]["message"] == "queue is full"

    story(tell)


def test_what_the_client_did_wrong_is_said_once(tmp_path: pathlib.Path) -> None:
    """A 400 of an engine is an answer: one attempt, unchanged."""

    async def tell() -> None:
        wrong = sends(plain(400, {"error": {"message": "too long", "n_ctx": 5}}))
        async with (
            engines(a1=wrong, a2=wrong) as both,
            gateway(tmp_path, routed(*(e.endpoint() for e in both))) as world,
        ):
            answer = await world.ask(CHAT)
            assert (answer.status, answer.json["error"]["n_ctx"]) == (400, 5)
            assert sum(len(e.asked) for e in both) == 1

    story(tell)


def test_a_fallback_answers_within_one_budget(tmp_path: pathlib.Path) -> None:
    """a has two dead replicas, b one that lives, and each names the other: three attempts, b's own name, 200."""

    async def tell() -> None:
        async with (
            engines(a1=says("x"), a2=says("x"), b1=says("from b")) as [one, two, other],
            gateway(
                tmp_path,
                routed(
                    one.endpoint(), two.endpoint(), other.endpoint(),
                    a={"fallbacks": ("b",)}, b={"fallbacks": ("a",)},
                ),
            ) as world,
        ):  # fmt: skip
            one.refuse()
            two.refuse()
            answer = await world.ask(CHAT)
            assert (answer.status, answer.json) == (200, {"said": "from b"})
            assert other.asked[0].json["model"] == "b"
            counted = await world.metrics()
            assert 'retries_total{model="a"} 2' in counted
            assert 'fallbacks_total{model="a"} 1' in counted

    story(tell)


def test_nothing_left_is_said_with_what_was_tried(tmp_path: pathlib.Path) -> None:
    """Only refusals: the request never ran, so 503 and Retry-After, without an address in it."""

    async def tell() -> None:
        async with (
            engines(a1=says("x")) as [engine],
            gateway(tmp_path, routed(engine.endpoint(), a={"retry_after": 12.0})) as world,
        ):
            engine.refuse()
            answer = await world.ask(CHAT)
            assert (answer.status, answer.headers["retry-after"]) == (503, "12")
            assert "connection refused" in answer.json["error"]["message"]
            assert str(engine.port) not in answer.body.decode()

    story(tell)


def test_the_wait_for_a_first_byte_ends(tmp_path: pathlib.Path) -> None:
    """An engine that accepts and says nothing: 504 at the deadline, and the engine is let go."""

    async def tell() -> None:
        async with (
            engines(a1=hangs()) as [engine],
            gateway(tmp_path, routed(engine.endpoint()), policy=Policy(first_byte=0.2)) as world,
        ):
            answer = await world.ask(CHAT)
            assert answer.status == 504
            await until(lambda: not engine.open, "the gateway left the engine")

    story(tell)


def test_a_client_that_leaves_frees_the_engine(tmp_path: pathlib.Path) -> None:
    """Before the first byte and in the middle of a stream alike: the upstream connection is closed at once."""

    async def tell() -> None:
        async with engines(a1=hangs()) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            for begun in ((), (STREAM, b"3\r\n{}\n\r\n")):
                engine.behave = hangs(*begun)
                seen = len(engine.asked)
                _, writer = await asyncio.open_connection("127.0.0.1", world.port)
                writer.write(post(CHAT))
                await until(lambda: len(engine.asked) > seen, "the engine was asked")  # noqa: B023
                writer.close()
                await until(lambda: not engine.open, "the engine was left")
            await until(lambda: world.control.last.in_flight == (), "nothing is in flight")
            assert 'code="499"} 2' in await world.metrics()

    story(tell)
