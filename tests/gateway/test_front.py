"""What clients may send, how they are answered when they may not, and what does not exist here."""

import asyncio
import pathlib

import pytest

from llmgw.gateway.receive import Limits
from tests.gateway.engine import STREAM, Asked, Wire, chunk, engines, event, says, waits_for
from tests.gateway.world import Answer, World, gateway, parse, post, routed, story, until

pytestmark = pytest.mark.usefixtures("loop")

CHAT = {"model": "a", "messages": []}


def test_an_unknown_model_is_404_and_a_sleeping_one_503(tmp_path: pathlib.Path) -> None:
    """A name that nobody wrote is 404; a name of the catalog without a ready replica is 503 with Retry-After."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a={"retry_after": 42.0})) as world:
            unknown, asleep = await world.ask({"model": "nope"}), await world.ask(CHAT)
            assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
            assert (asleep.status, asleep.headers["retry-after"]) == (503, "42")
            assert asleep.json["error"]["type"] == "server_error"
            counted = await world.metrics()
            assert 'requests_total{model="other",code="404"} 1' in counted
            assert "nope" not in counted
            assert 'requests_total{model="a",code="503"} 1' in counted

    story(tell)


def test_models_are_listed_with_their_aliases(tmp_path: pathlib.Path) -> None:
    """/v1/models is answered here, and each name it lists can be asked for."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a={"aliases": ("big", "org/big")}, b={})) as world:
            listed = await get(world, "/v1/models")
            assert [card["id"] for card in listed.json["data"]] == ["a", "b", "big", "org/big"]
            assert (await get(world, "/v1/models/org%2Fbig")).json["id"] == "org/big"
            assert (await get(world, "/v1/models/none")).status == 404

    story(tell)


def test_control_routes_do_not_exist(tmp_path: pathlib.Path) -> None:
    """However an engine's own routes are spelled, the engine is not asked."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            for path in (
                "/load_lora_adapter", "/v1/load_lora_adapter", "/update_weights_from_disk", "/sleep", "/metrics",
                "/v1/chat/completions/../../sleep", "//v1/chat/completions", "/v1/chat%2fcompletions", "/health",
                "http://x/v1/chat/completions", "/v1/chat/completions;x",
            ):  # fmt: skip
                assert (await world.ask(CHAT, path)).status == 404, path
            assert engine.asked == []
            wrong = parse(
                await world.raw(b"GET /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            )
            assert (wrong.status, wrong.headers["allow"]) == (405, "POST")

    story(tell)


def test_a_body_that_names_no_model_is_refused_with_its_fault(tmp_path: pathlib.Path) -> None:
    """Not JSON, not an object, no model, two models: 400 each, and the engine hears none of it."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            for body, fault in (
                (b"{", "not JSON"),
                (b"[]", "not a JSON object"),
                (b"{}", "missing"),
                (b'{"model": 7}', "not a name"),
                (b'{"model": "a", "model": "b"}', "more than once"),
                (b'{"model": "a", "x": "model", "mod\\u0065l": "b"}', "more than once"),
                (b'{"model":' * 5000, "not JSON"),
            ):
                answer = await world.ask(body)
                assert answer.status == 400
                assert fault in answer.json["error"]["message"]
            assert engine.asked == []

    story(tell)


def test_limits_are_answered_with_their_own_status(tmp_path: pathlib.Path) -> None:
    """Too large a head 431, too large a body 413 before it is sent, wrong or missing Host 400, HTTP/1.0 505: all closed."""

    async def tell() -> None:
        limits = Limits(head=1000, body=2000, lingering=0.2)
        host = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
        async with (
            engines(a1=says("x")) as [engine],
            gateway(tmp_path, routed(engine.endpoint()), limits=limits) as world,
        ):
            for status, *pieces in (
                (431, host + b"X: " + b"y" * 2000 + b"\r\n\r\n"),
                (431, host, b"X: ", *[b"y" * 300] * 5),
                (431, host, *[b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"] * 40),
                (413, host + b"Content-Length: 2001\r\n\r\n"),
                (413, host + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk(b"y" * 500)] * 5),
                (400, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
                (400, host + b"Host: y\r\nContent-Length: 0\r\n\r\n"),
                (400, host + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
                (400, host + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
                (400, b"nonsense\r\n\r\n"),
                (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                (405, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"),
                (417, host + b"Expect: a-miracle\r\nContent-Length: 2\r\n\r\n{}"),
                (505, b"POST /v1/completions HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"),
            ):
                answer = parse(await world.raw(*pieces))
                assert answer.status == status, pieces
                assert answer.json["error"]["message"].startswith("cannot ")
                assert answer.headers["connection"] == "close"
            assert engine.asked == []

    story(tell)


def test_a_client_that_drips_is_cut(tmp_path: pathlib.Path) -> None:
    """A head or a body that does not come in time is answered 408; a connection that says nothing is closed."""

    async def tell() -> None:
        limits = Limits(head_within=0.15, body_within=0.15, lingering=0.1)
        async with gateway(tmp_path, routed(a={}), limits=limits) as world:
            assert parse(await world.raw(b"POST /v1/comp")).status == 408
            assert parse(await world.raw(post(CHAT)[:-3])).status == 408
            assert await world.raw(b"") == b""

    story(tell)


def test_a_client_that_waits_to_be_told_is_told(tmp_path: pathlib.Path) -> None:
    """Expect: 100-continue is answered as soon as the head is good, and the body then served."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            whole = post(CHAT, "/v1/completions", b"Expect: 100-continue", b"Connection: close")
            head, _, body = whole.partition(b"\r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(head + b"\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert parse(await reader.read()).status == 200
            writer.close()

    story(tell)


def test_an_offered_upgrade_is_declined_and_the_request_served(tmp_path: pathlib.Path) -> None:
    """Java's client offers h2c with its first POST: it is answered over HTTP/1.1, body and all."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            offer = (
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: AAEAAEAAAAIAAAAB",
            )
            last = post({**CHAT, "second": True}, "/v1/completions", b"Connection: close")
            both = await world.raw(post(CHAT, "/v1/completions", *offer) + last)
            assert both.count(b"HTTP/1.1 200") == 2
            assert [asked.json for asked in engine.asked] == [CHAT, {**CHAT, "second": True}]

    story(tell)


def test_requests_on_one_connection_are_answered_in_order(tmp_path: pathlib.Path) -> None:
    """Ten sent at once, local and upstream mixed: ten answers, in the order that they were asked."""

    async def tell() -> None:
        async with engines(a1=echoes) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            asked = b"".join(
                post({**CHAT, "n": n}) if n % 3 else b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
                for n in range(9)
            )
            got = await world.raw(asked + post({**CHAT, "n": 9}, "/v1/completions", b"Connection: close"))
            order = [got.index(b'"n": %d' % n) for n in range(10) if n % 3 or n == 9]
            assert order == sorted(order)
            assert got.count(b"HTTP/1.1 200") == 10

    story(tell)


async def echoes(asked: Asked, wire: Wire) -> None:
    """Answers with the request's own body."""
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(asked.body), asked.body))


def test_a_slow_reader_slows_its_engine_and_nobody_else(tmp_path: pathlib.Path) -> None:
    """A client that takes nothing: the engine is stopped by the window, others go on, and its time runs out."""

    async def tell() -> None:
        sent = 0

        async def floods(asked: Asked, wire: Wire) -> None:
            nonlocal sent
            await wire.send(STREAM)
            while True:
                await wire.send(chunk(event("x" * 65536)))
                sent += 65536

        async with engines(a1=floods, b1=says("x")) as [flood, other]:
            routes = routed(flood.endpoint(), other.endpoint())
            async with gateway(tmp_path, routes, limits=Limits(stalled=0.5)) as world:
                _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
                writer.write(post({**CHAT, "stream": True}))
                await until(lambda: sent > 10 * 65536, "the flood began")
                assert (await world.ask({"model": "b"})).status == 200
                await until(lambda: not flood.open, "the engine was let go")
                assert sent < 64 * 1024 * 1024
                writer.close()

    story(tell)


def test_there_is_a_last_connection(tmp_path: pathlib.Path) -> None:
    """Beyond the limit a connection is closed as it comes; when one ends, the next is served."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a={}), limits=Limits(connections=2)) as world:
            both = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(2)]
            await until_connections(world, 2)
            assert await world.raw(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n") == b""
            for _, writer in both:
                writer.close()
            await until_connections(world, 0)
            assert (await get(world, "/v1/models")).status == 200

    story(tell)


async def until_connections(world: World, count: int) -> None:
    """Wait until the gateway has so many clients."""
    for _ in range(2000):
        if f"connections {count}\n" in await world.metrics():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"never {count} connections")


def test_a_line_a_request_without_its_content(tmp_path: pathlib.Path) -> None:
    """The access log has model, replica, status and bytes, and no word that the client wrote."""

    async def tell() -> None:
        gate = asyncio.Event()
        async with (
            engines(a1=waits_for(gate, says("x"))) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            asking = asyncio.ensure_future(world.ask({**CHAT, "user": "s3cret"}))
            await until(lambda: engine.asked, "it is under way")
            assert 'in_flight{model="a"} 1' in await world.metrics()
            gate.set()
            await asking
            await world.ask({"model": "s3cret"}, "/v1/s3cret")
            await until(lambda: len("".join(world.log).splitlines()) == 2, "both are logged")
            assert " 200 /v1/chat/completions model=a replica=a/1 attempts=1 " in world.log[0]
            assert "s3cret" not in "".join(world.log)

    story(tell)


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: pathlib.Path) -> None:
    """stderr is a broken pipe: the requests after the first flush are answered as the ones before."""

    async def tell() -> None:
        broken: list[str] = []

        def write(text: str) -> None:
            broken.append(text)
            raise BrokenPipeError

        async with gateway(tmp_path, routed(a={}), access=write) as world:
            await world.ask(CHAT)
            await until(lambda: broken, "a flush failed")
            assert (await world.ask(CHAT)).status == 503
            assert not world.running.done()

    story(tell)


async def get(world: World, path: str) -> Answer:
    """One GET."""
    return parse(await world.raw(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode()))


def test_a_large_body_makes_nobody_wait(tmp_path: pathlib.Path) -> None:
    """While ten thousand pieces of it are read, another client is answered again and again."""

    async def tell() -> None:
        async with (
            engines(a1=says("x")) as [engine],
            gateway(tmp_path, routed(engine.endpoint(), a={"aliases": ("big",)})) as world,
        ):
            body = b'{"model":"big","x":[%b[]],"messages":[]}' % (b"[]," * 700_000)
            hostile = asyncio.ensure_future(world.ask(body))
            answered = 0
            while not hostile.done():
                assert (await get(world, "/v1/models")).status == 200
                answered += 1
            assert (await hostile).status == 200
            assert engine.asked[-1].body == body.replace(b"big", b"a", 1)
            assert answered >= 10

    story(tell)


def test_a_client_that_asked_ahead_and_leaves_is_noticed(tmp_path: pathlib.Path) -> None:
    """Two requests at once, and nobody there any more: the engine's connection is closed, the second is never asked."""

    async def tell() -> None:
        left = asyncio.Event()

        async def waits(_: Asked, wire: Wire) -> None:
            assert await wire.reader.read(1) == b""
            left.set()

        async with engines(a1=waits) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(2 * post(CHAT))
            await until(lambda: len(engine.asked) == 1, "the first one is under way")
            writer.close()
            async with asyncio.timeout(20.0):
                await left.wait()
            assert len(engine.asked) == 1

    story(tell)


def test_a_client_that_leaves_while_its_large_body_is_read_is_forgotten(tmp_path: pathlib.Path) -> None:
    """Nothing of it is read on, and no engine is asked."""

    async def tell() -> None:
        async with engines(a1=says("x")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            body = b'{"model":"a","x":[%b[]]}' % (b"[]," * 700_000)
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(post(body))
            await writer.drain()
            writer.transport.abort()
            assert (await world.ask(b'{"model":"a","x":"%b"}' % (b"x" * 100_000))).status == 200
            assert len(engine.asked) == 1

    story(tell)
