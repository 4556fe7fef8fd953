"""HTTP/1.1 on the same port: whole requests, answers whole or in pieces, and what is refused."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator

import httpx
import pytest

from llmgw.transport.http import Request, Response, problem
from llmgw.transport.http1 import Http1
from llmgw.transport.limits import Limits
from tests.transport.harness import HOST, QUICK, listening, until
from tests.transport.harness import echo as on_channel

SMALL = dataclasses.replace(QUICK, head=2_000, body=10_000)


async def talk(port: int, *pieces: bytes) -> bytes:
    """Send the pieces, read until the server hangs up."""
    reader, writer = await asyncio.open_connection(HOST, port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 5.0)
    writer.close()
    return answer


def get(path: str = "/", *more: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *more, "Connection: close", "", ""]).encode()


def test_request() -> None:
    """A handler gets the request whole: decoded path, query, headers in lower case, body, peer."""
    seen: list[Request] = []

    async def handler(request: Request) -> Response:
        seen.append(request)
        return Response(201, b'{"ok":true}', headers=(("x-revision", "7"),))

    async def story() -> None:
        async with listening(on_request=handler) as (_, port), httpx.AsyncClient() as client:
            answer = await client.post(
                f"http://{HOST}:{port}/v1/a%20b?x=1&y=%26&x=2&z=", content=b"hi", headers={"X-Token": "t"}
            )
            request = seen[0]

            assert (answer.status_code, answer.json(), answer.headers["x-revision"]) == (
                201,
                {"ok": True},
                "7",
            )
            assert (request.method, request.path, request.body) == ("POST", "/v1/a b", b"hi")
            assert request.query == {"x": "2", "y": "&", "z": ""}
            assert request.headers["x-token"] == "t"
            assert request.peer.startswith(HOST)

    asyncio.run(story())


def test_one_connection() -> None:
    """One socket carries many requests, one after the other, also when they come in one piece."""

    async def story() -> None:
        async with listening() as (listener, port):
            first = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
            answer = await talk(
                port, first + b"POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi" + get("/3")
            )

            assert answer.count(b"HTTP/1.1 200") == 3
            assert [answer.index(path) for path in (b"/1", b"/2", b"/3")] == sorted(
                answer.index(path) for path in (b"/1", b"/2", b"/3")
            )
            await until(lambda: listener.connections == 0, "it hung up")

    asyncio.run(story())


def test_chunked_body() -> None:
    """A body of unknown length arrives whole, and a client that asks first is told to go on."""

    async def handler(request: Request) -> Response:
        return Response(200, request.body)

    async def story() -> None:
        async with listening(on_request=handler) as (_, port):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            chunked = await talk(
                port, head + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
            )
            assert chunked.endswith(b"\r\n\r\nhello")

            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(b"hello")
            assert (await reader.read()).endswith(b"\r\n\r\nhello")
            writer.close()

    asyncio.run(story())


def test_head() -> None:
    """HEAD tells the length and sends no body; the connection goes on."""

    async def story() -> None:
        async with listening() as (_, port):
            answer = await talk(port, b"HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n" + get("/next"))

            assert b"content-length: 4" in answer
            assert answer.count(b"/abc") == 0
            assert answer.endswith(b"/next")

    asyncio.run(story())


def test_handler_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that fails is told to the log whole and to the client without its inside."""

    async def handler(request: Request) -> Response:
        raise RuntimeError("the secret is 42")

    async def story() -> None:
        async with listening(on_request=handler) as (_, port):
            answer = await talk(port, get("/v1/nodes"))

            assert answer.startswith(b"HTTP/1.1 500")
            assert (
                json.loads(answer.split(b"\r\n\r\n")[1])["error"]["said"]
                == "cannot answer GET /v1/nodes: internal error"
            )
            assert b"42" not in answer

    asyncio.run(story())
    assert "the secret is 42" in caplog.text


def test_streaming() -> None:
    """An answer in pieces arrives piece by piece, while the rest is not made yet."""
    more = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        await more.wait()
        yield b"two\n"

    async def handler(request: Request) -> Response:
        return Response(200, pieces(), "text/plain")

    async def story() -> None:
        async with listening(on_request=handler) as (_, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(get())
            await reader.readuntil(b"one\n")
            more.set()

            assert (await reader.read()).endswith(b"two\n\r\n0\r\n\r\n")
            writer.close()

    asyncio.run(story())


def test_follower_leaves() -> None:
    """A client that leaves an endless answer ends it, even while nothing happens there."""
    begun, closed = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def handler(request: Request) -> Response:
        return Response(200, pieces())

    async def story() -> None:
        async with listening(on_request=handler) as (listener, port):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(get())
            await begun.wait()
            writer.close()
            await asyncio.wait_for(closed.wait(), 5.0)
            await until(lambda: listener.connections == 0, "the socket is closed")

    asyncio.run(story())


def test_stream_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    """An answer that breaks off is not passed for a whole one."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        raise RuntimeError("no more")

    async def handler(request: Request) -> Response:
        return Response(200, pieces())

    async def story() -> None:
        async with listening(on_request=handler) as (_, port), httpx.AsyncClient() as client:
            with pytest.raises(httpx.HTTPError):
                await client.get(f"http://{HOST}:{port}/")

    asyncio.run(story())
    assert "no more" in caplog.text


def test_client_leaves_early() -> None:
    """A handler that has begun finishes its work, whether or not anybody waits for the answer."""
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.set()
        await go_on.wait()
        done.set()
        return Response(200)

    async def story() -> None:
        async with listening(on_request=handler) as (listener, port):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(get())
            await begun.wait()
            writer.close()
            await until(lambda: listener.connections == 0, "the client is gone")
            go_on.set()
            await asyncio.wait_for(done.wait(), 5.0)

    asyncio.run(story())


@pytest.mark.parametrize(
    "bad",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x10\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
    ],
)
def test_malformed(bad: bytes) -> None:
    """What can be read in two ways is not read at all: 400, and the connection ends."""

    async def story() -> None:
        async with listening() as (_, port):
            answer = await talk(port, bad + get("/smuggled"))

            assert answer.startswith(b"HTTP/1.1 400")
            assert b"cannot read the request" in answer
            assert b"smuggled" not in answer

    asyncio.run(story())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3_000, b"431"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10001\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99_999, b"413"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"3e8\r\n"
            + b"x" * 1000
            + b"\r\n"
            + (b"3e8\r\n" + b"x" * 1000 + b"\r\n") * 11,
            b"413",
        ),
        (b"GET / HT", b"408"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell", b"408"),
    ],
)
def test_too_much_or_too_slow(request_: bytes, status: bytes) -> None:
    """Heads, bodies and their arrival are bounded, and the client is told which bound it met."""

    async def story() -> None:
        async with listening(limits=SMALL) as (_, port):
            assert (await talk(port, request_)).startswith(b"HTTP/1.1 " + status)

    asyncio.run(story())


def test_drip() -> None:
    """One byte now and then does not put the deadline off."""

    async def story() -> None:
        async with listening(limits=SMALL) as (_, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            answer = asyncio.create_task(reader.read())
            for byte in get("/" + "x" * 200):
                writer.write(bytes([byte]))
                done, _ = await asyncio.wait({answer}, timeout=0.02)
                if done:
                    break
            assert (await answer).startswith(b"HTTP/1.1 408")
            writer.close()

    asyncio.run(story())


def test_idle() -> None:
    """A connection that asks nothing is closed without a word."""

    async def story() -> None:
        async with listening(limits=SMALL) as (_, port):
            assert await talk(port, b"") == b""
            answer = await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.count(b"HTTP/1.1") == 1

    asyncio.run(story())


def test_impatient_client() -> None:
    """A client that floods while its request is worked on is cut; there is no queue to fill."""
    begun = asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def story() -> None:
        async with listening(on_request=handler, limits=SMALL) as (listener, port):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(get())
            await begun.wait()
            writer.write(b"x" * 5_000)
            await until(lambda: listener.connections == 0, "it was cut")
            writer.close()

    asyncio.run(story())


def test_room() -> None:
    """The number of sockets is bounded; who comes too many is turned away, and the others go on."""

    async def story() -> None:
        async with listening(limits=Limits(connections=2)) as (listener, port):
            held = [await asyncio.open_connection(HOST, port) for _ in range(2)]
            await until(lambda: listener.connections == 2, "both are in")
            reader, writer = await asyncio.open_connection(HOST, port)
            assert await reader.read() == b""

            held[0][1].write(get())
            assert (await held[0][0].read()).startswith(b"HTTP/1.1 200")
            for _, open_ in [*held, (reader, writer)]:
                open_.close()

    asyncio.run(story())


def test_closing() -> None:
    """A listener that closes breaks off what is under way and leaves no task behind."""
    begun = asyncio.Event()
    ends: list[str] = []

    async def handler(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    async def story() -> None:
        async with listening(on_channel, handler) as (listener, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(get())
            await begun.wait()
            await listener.close()

            assert ends == ["cancelled"]
            assert await reader.read() == b""
            writer.close()

    asyncio.run(story())


def test_problem() -> None:
    """A refusal is one sentence and what would help."""
    refusal = problem(409, "cannot apply: the world moved", help="plan again")

    assert refusal.status == 409
    assert json.loads(refusal.body) == {
        "error": {"said": "cannot apply: the world moved", "help": "plan again"}
    }  # type: ignore[arg-type]


def test_two_lengths() -> None:
    """A body that ends in two places is refused: whoever stands between us might believe the other one."""

    async def story() -> None:
        async with listening() as (_, port):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            answer = await talk(port, head + b"0\r\n\r\n" + get("/hidden"))

            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"Content-Length and Transfer-Encoding" in answer
            assert answer.count(b"HTTP/1.1 ") == 1

    asyncio.run(story())


@pytest.mark.parametrize("more", ["A: " + "a" * 4_000, "\r\n".join(f"A{n}: b" for n in range(1_000))])
def test_a_large_head_in_one_piece(more: str) -> None:
    """The limit holds however the head arrives."""

    async def story() -> None:
        async with listening(limits=SMALL) as (_, port):
            answer = await talk(port, get("/", more))
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert (await talk(port, get("/", "A: " + "a" * 1_000))).startswith(b"HTTP/1.1 200 ")

    asyncio.run(story())


@pytest.mark.parametrize("digits", [19, 30, 5_000])
def test_a_length_beyond_all_numbers(digits: int) -> None:
    """It is refused like any body that is too long, not with a traceback in the log."""

    async def story() -> None:
        async with listening() as (_, port):
            answer = await talk(port, get("/", "Content-Length: " + "9" * digits))
            assert answer[:13] in (b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")

    asyncio.run(story())


def _stranger(request: Request) -> Response | None:
    """A door that only a token opens."""
    return None if "token" in request.headers else problem(401, "cannot answer: no token")


def test_who_is_turned_away_is_so_at_the_head() -> None:
    """A stranger's body is not waited for, asked for or kept: a megabyte of it leaves nothing here."""

    async def story() -> None:
        async with listening(door=_stranger) as (listener, port):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n"
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(head + b"Expect: 100-continue\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
            (greeter,) = listener._open
            speaker = greeter._speaker
            assert isinstance(speaker, Http1)
            took: list[int] = []
            take = speaker.data_received
            speaker.data_received = lambda data: (took.append(len(data)), take(data))[1]  # type: ignore[method-assign]
            writer.write(bytes(1_000_000))
            await until(lambda: sum(took) == 1_000_000, "it was all sent")
            kept, _ = speaker._h11.trailing_data
            assert len(kept) < 4096
            writer.transport.abort()
            answer = await talk(port, head.replace(b"30000000", b"2") + b"Token: t\r\n\r\nhi" + get())
            assert answer.startswith(b"HTTP/1.1 200 ")

    asyncio.run(story())


def test_all_bodies_together() -> None:
    """Each is small enough and all of them are not: who comes last is told so, and there is room afterwards."""
    seen: list[bytes] = []
    go_on = asyncio.Event()

    async def handler(request: Request) -> Response:
        seen.append(request.body)
        await go_on.wait()
        return Response(200)

    async def story() -> None:
        limits = dataclasses.replace(SMALL, bodies=15_000)
        async with listening(on_request=handler, limits=limits) as (_, port):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9000\r\n\r\n"
            first = asyncio.create_task(talk(port, head, bytes(9_000)))
            await until(lambda: seen, "the first is here")
            second = await talk(port, head, bytes(9_000))
            assert second.startswith(b"HTTP/1.1 503 ")
            assert b"15000 is the most" in second
            go_on.set()
            assert (await first).startswith(b"HTTP/1.1 200 ")
            assert (await talk(port, head, bytes(9_000))).startswith(b"HTTP/1.1 200 ")
            assert [len(body) for body in seen] == [9_000, 9_000]

    asyncio.run(story())
