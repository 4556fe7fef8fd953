"""What the client sees is what the engine said, or a proper error."""

import pathlib

import pytest

from tests.gateway.engine import (
    DONE,
    STREAM,
    Asked,
    Wire,
    chunk,
    engines,
    event,
    plain,
    says,
    sends,
    sends_and_dies,
)
from tests.gateway.world import gateway, post, routed, story

pytestmark = pytest.mark.usefixtures("loop")

CHAT = {"model": "a", "messages": []}
STREAMED = {**CHAT, "stream": True}


def test_a_plain_answer_arrives_byte_for_byte(tmp_path: pathlib.Path) -> None:
    """Status, body and the engine's own headers reach the client; its connection headers and cookies do not."""

    async def tell() -> None:
        odd = plain(200, {"said": "é"}, b"X-Engine: seven", b"Set-Cookie: a=b", b"Connection: keep-alive")
        async with engines(a1=sends(odd)) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            answer = await world.ask(CHAT)
            assert (answer.status, answer.json, answer.ended) == (200, {"said": "é"}, True)
            assert answer.headers["x-engine"] == "seven"
            assert "set-cookie" not in answer.headers
            assert answer.headers["x-request-id"] == engine.asked[0].headers["x-request-id"]

    story(tell)


def test_a_stream_cut_anywhere_arrives_byte_for_byte(tmp_path: pathlib.Path) -> None:
    """Heads in pieces, chunk sizes apart from their chunks, a letter in two reads: the client sees the same bytes."""

    async def tell() -> None:
        body = event("né") + event("🙂") + DONE
        raw = STREAM + chunk(body[:31]) + chunk(body[31:33]) + chunk(body[33:]) + b"0\r\n\r\n"
        one_by_one = [raw[i : i + 1] for i in range(len(raw))]
        async with (
            engines(a1=sends(*one_by_one)) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            answer = await world.ask(STREAMED)
            assert answer.ended
            assert answer.body == body

    story(tell)


def test_a_dead_engine_is_no_end_of_a_stream(tmp_path: pathlib.Path) -> None:
    """After three events and the engine's death: three whole events, one error event, no [DONE], a cut connection."""

    async def tell() -> None:
        begun = [STREAM, *(chunk(event(word)) for word in ["one", "two", "three"]), b'40\r\ndata: {"cho']
        async with (
            engines(a1=sends_and_dies(*begun)) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            answer = await world.ask(STREAMED)
            assert not answer.ended
            assert len(answer.events) == 4
            assert "three" in answer.events[2]
            assert answer.events[3].startswith('{"error":')
            assert "[DONE]" not in answer.body.decode()
            assert len(engine.asked) == 1
            assert 'broken_answers_total{model="a",how="cut"} 1' in await world.metrics()

    story(tell)


def test_a_clean_close_without_done_is_a_death_too(tmp_path: pathlib.Path) -> None:
    """The framing ends as it should and [DONE] never came: the client is told, and not given an end."""

    async def tell() -> None:
        feigned = chunk(event("one") + b'data: {"text":"data: [DONE]"}\n\n')
        async with engines(a1=says("")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            for last in (b"0\r\n\r\n", b"0\r\n"):
                engine.behave = sends_and_dies(STREAM, feigned, last)
                answer = await world.ask(STREAMED)
                assert not answer.ended
                assert answer.events[-1].startswith('{"error":')

    story(tell)


def test_what_an_engine_says_on_its_way_down_is_counted_and_not_touched(tmp_path: pathlib.Path) -> None:
    """An `abort` and an error event pass as they are; the metrics do not call them clean."""

    async def tell() -> None:
        abort = b'data: {"choices":[{"finish_reason":"abort"}]}\n\n'
        error = b'data: {"error":{"message":"going down"}}\n\n'
        async with engines(a1=says("")) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            for last in (abort, error):
                engine.behave = sends(STREAM, chunk(event("one")), chunk(last + DONE), b"0\r\n\r\n")
                answer = await world.ask(STREAMED)
                assert answer.ended
                assert answer.body == event("one") + last + DONE
            counted = await world.metrics()
            assert 'how="abort"} 1' in counted
            assert 'how="error"} 1' in counted

    story(tell)


def test_a_plain_answer_that_breaks_is_cut(tmp_path: pathlib.Path) -> None:
    """Half of a promised length arrives as half: no padding, no second try, a closed connection."""

    async def tell() -> None:
        half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50
        async with (
            engines(a1=sends_and_dies(half), a2=sends_and_dies(half)) as both,
            gateway(tmp_path, routed(*(e.endpoint() for e in both))) as world,
        ):
            answer = await world.ask(CHAT)
            assert (answer.status, len(answer.body), answer.ended) == (200, 50, False)
            assert sum(len(e.asked) for e in both) == 1

    story(tell)


def test_an_answer_without_a_length_is_no_answer(tmp_path: pathlib.Path) -> None:
    """Whether a close is its end or a death cannot be told, so the client gets 502 instead of a guess."""

    async def tell() -> None:
        vague = sends_and_dies(b"HTTP/1.1 200 OK\r\n\r\nhalf of someth")
        async with engines(a1=vague) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            answer = await world.ask(CHAT)
            assert answer.status == 502
            assert answer.json["error"]["code"] == "upstream_failed"

    story(tell)


def test_an_alias_costs_only_its_own_bytes(tmp_path: pathlib.Path) -> None:
    """Asked by alias, the engine reads its own name, a right length, and the rest as the client wrote it."""

    async def tell() -> None:
        async with (
            engines(a1=says("hello")) as [engine],
            gateway(tmp_path, routed(engine.endpoint(), a={"aliases": ("gpt-4o-mini",)})) as world,
        ):
            raw = b'{ "x": {"model": "gpt-4o-mini"},\n "model" : "gpt-4o-mini" , "u":"\\u00e9\xc3\xa9"}'
            answer = await world.ask(raw)
            assert answer.status == 200
            want = b'{ "x": {"model": "gpt-4o-mini"},\n "model" : "a" , "u":"\\u00e9\xc3\xa9"}'
            assert engine.asked[0].body == want

    story(tell)


def test_the_upstream_request_is_built(tmp_path: pathlib.Path) -> None:
    """Authorization, cookies, forged forwarding headers, the query and the client's request id end here."""

    async def tell() -> None:
        async with (
            engines(a1=says("hello")) as [engine],
            gateway(tmp_path, routed(engine.endpoint())) as world,
        ):
            secret = (
                b"Authorization: Bearer s3cret",
                b"Cookie: s3cret",
                b"X-Forwarded-For: s3cret",
                b"X-Request-Id: s3cret",
            )
            await world.raw(post(CHAT, "/v1/chat/completions?key=s3cret", *secret, b"Connection: close"))
            [asked] = engine.asked
            assert asked.line == "POST /v1/chat/completions HTTP/1.1"
            assert set(asked.headers) == {"host", "content-type", "accept", "x-request-id", "content-length"}
            assert "s3cret" not in str(asked)
            assert "s3cret" not in "".join(world.log)

    story(tell)


def test_an_interim_answer_is_not_the_answer(tmp_path: pathlib.Path) -> None:
    """A 1xx before the real head changes nothing for the client."""

    async def tell() -> None:
        async def behave(asked: Asked, wire: Wire) -> None:
            await wire.send(b"HTTP/1.1 102 Processing\r\n\r\n", plain(200, {"said": "x"}))

        async with engines(a1=behave) as [engine], gateway(tmp_path, routed(engine.endpoint())) as world:
            answer = await world.ask(CHAT)
            assert (answer.status, answer.json) == (200, {"said": "x"})

    story(tell)
