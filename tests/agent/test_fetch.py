"""One file over HTTP from servers that misbehave: right bytes or no entry, never a third thing."""

import asyncio
import dataclasses
import hashlib
import os
import pathlib

import pytest

from llmgw.errors import Failed
from tests.agent.fetching import LIMITS, Store, noise, pinned, store, unpinned
from tests.support.weights_server import Answer, WeightsServer, etag_of

BODY = noise(300_000)
OTHER = noise(300_000, seed=1)
PATH = "/m.gguf"

FIRST = {
    "nothing came": Answer(status=503),
    "a part came": Answer(cut=120_000),
    "a part came, no length": Answer(cut=120_000, framing="chunked"),
    "a part came, weak etag": Answer(cut=120_000, headers={"ETag": 'W/"w"'}),
    "a part of other bytes came": Answer(cut=120_000, body=OTHER),
    "nearly all came": Answer(cut=299_999),
}
THEN = {
    "right": Answer(),
    "no ranges": Answer(ranges=False),
    "chunked": Answer(framing="chunked"),
    "ends by close": Answer(framing="close", ranges=False),
    "wrong start": Answer(headers={"Content-Range": "bytes 0-299999/300000"}),
    "off by one": Answer(headers={"Content-Range": "bytes 119999-299999/300000"}),
    "garbled range": Answer(headers={"Content-Range": "bytes"}),
    "no range said": Answer(headers={"Content-Range": ""}),
    "other total": Answer(headers={"Content-Range": "bytes 120000-299999/300001"}),
    "changed etag": Answer(headers={"ETag": '"changed"'}),
    "416": Answer(status=416, headers={"Content-Range": "bytes */300000"}, body=b""),
    "always 206": Answer(status=206),
    "short again": Answer(cut=150_000),
    "stall": Answer(stall=0),
    "gzip": Answer(headers={"Content-Encoding": "gzip"}),
    "other bytes": Answer(body=OTHER, ranges=False),
    "too long": Answer(body=BODY + b"x", ranges=False),
    "too short": Answer(body=BODY[:-1], ranges=False),
    "503": Answer(status=503),
    "404": Answer(status=404),
}
FINAL = {"gzip", "other bytes", "too long", "too short", "404"}
"""What no further attempt would change, so none is made."""
FOREVER = FINAL | {"ends by close", "stall", "503", "short again"}
"""What an unpinned fetch does not survive when it never ends."""
DISTRUSTED = {
    "wrong start",
    "off by one",
    "garbled range",
    "no range said",
    "other total",
    "changed etag",
    "416",
    "always 206",
}
"""What it need not survive either: a 206 that does not fit is dropped, and comes again."""


async def _ensure(held: Store, server: WeightsServer, *, pin: bool) -> pathlib.Path | None:
    source = pinned(server.url(PATH), BODY) if pin else unpinned(server.url(PATH))
    try:
        return await held.weights.ensure(source)
    except Failed:
        return None


@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("first", FIRST)
def test_right_bytes_or_no_entry(first: str, then: str, tmp_path: pathlib.Path) -> None:
    """Whatever came first and whatever comes then, an entry has the right bytes, and there is no other."""

    async def story(server: WeightsServer) -> pathlib.Path | None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=0.15)) as held:
            path = await _ensure(held, server, pin=True)
            assert [entry.whole for entry in held.cache.list_entries()].count(True) == (path is not None)
            return path

    with WeightsServer({PATH: BODY}) as server:
        # An honest server at the end: what was glued together wrongly would show.
        server.behave(PATH, FIRST[first], THEN[then], Answer())
        path = asyncio.run(story(server))
        assert server.count(PATH) >= 2, "both faults took effect"
    assert path is None or path.read_bytes() == BODY
    assert path is not None or then in FINAL


@pytest.mark.parametrize("first", ["nothing came", "a part came"])
@pytest.mark.parametrize("then", sorted(set(THEN) - {"other bytes", "too long", "too short"}))
def test_right_bytes_without_a_pin(first: str, then: str, tmp_path: pathlib.Path) -> None:
    """Without a digest the framing and the validator alone decide, and never in favour of a guess."""

    async def story(server: WeightsServer) -> pathlib.Path | None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=0.15)) as held:
            return await _ensure(held, server, pin=False)

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, FIRST[first], THEN[then])
        path = asyncio.run(story(server))
    assert path is None or path.read_bytes() == BODY
    assert path is not None or then in FOREVER | DISTRUSTED


def test_a_resume_fetches_only_the_rest(tmp_path: pathlib.Path) -> None:
    """After a cut the bytes that came are not asked for again."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            assert await _ensure(held, server, pin=True) is not None

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(cut=120_000), Answer())
        asyncio.run(story(server))
        assert server.sent == len(BODY)
        assert server.asked[1].headers["range"] == "bytes=120000-"
        assert server.asked[1].headers["if-range"] == etag_of(BODY)


def test_a_changed_file_is_fetched_anew(tmp_path: pathlib.Path) -> None:
    """Half of the old file and half of the new one never meet."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            path = await held.weights.ensure(unpinned(server.url(PATH)))
            assert path.read_bytes() == OTHER

    with WeightsServer({PATH: OTHER}) as server:
        server.behave(PATH, Answer(cut=120_000, body=BODY, headers={"ETag": etag_of(BODY)}), Answer())
        asyncio.run(story(server))
        assert server.asked[1].headers["if-range"] == etag_of(BODY)
        assert [asked.status for asked in server.asked] == [200, 200]


def test_both_digests_are_said(tmp_path: pathlib.Path) -> None:
    """Wrong bytes are removed, and the message holds what came and what was wanted."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            assert not any(path.is_file() for path in held.root.glob("**/m.gguf"))
            return caught.value.said

    with WeightsServer({PATH: OTHER}) as server:
        said = asyncio.run(story(server))
        assert server.count(PATH) == 1, "the same server would send the same bytes"
    assert hashlib.sha256(BODY).hexdigest() in said
    assert hashlib.sha256(OTHER).hexdigest() in said


def test_what_came_wrong_twice_is_not_fetched_again(tmp_path: pathlib.Path) -> None:
    """The same file of the same server, by another agent too: it is asked for, and not taken. A new one is."""

    async def attempt(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            try:
                return (await held.weights.ensure(pinned(server.url(PATH), BODY))).name
            except Failed as failed:
                return failed.said

    with WeightsServer({PATH: OTHER}) as server:
        said = [asyncio.run(attempt(server)) for _ in range(4)]
        assert said[0] == said[1]
        assert said[2] == said[3]
        assert "it came 2 times and is still the same there" in said[2]
        assert hashlib.sha256(OTHER).hexdigest() in said[2]
        assert "came)" in said[1]
        assert "came)" not in said[2], "no byte of it was taken"
        server.files[PATH] = BODY
        assert not asyncio.run(attempt(server)).startswith("cannot fetch")


@pytest.mark.parametrize("tag", ['"one"', ""])
def test_what_may_be_another_file_is_fetched(tag: str, tmp_path: pathlib.Path) -> None:
    """Wrong twice, under ETags that differ or with none: nothing says that the next one is the same."""

    async def attempt(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return caught.value.said

    with WeightsServer({PATH: OTHER}) as server:
        for turn in range(3):
            server.behave(PATH, Answer(headers={"ETag": tag and f'"{turn}"'}))
            assert "still the same" not in asyncio.run(attempt(server))


def test_a_stall_is_said_with_its_limit(tmp_path: pathlib.Path) -> None:
    """No byte for the stall limit ends an attempt; what came is kept."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            (entry,) = held.cache.list_entries()
            assert entry.size > 50_000
            assert not entry.whole
            return caught.value.said

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(stall=50_000), Answer(stall=0))
        said = asyncio.run(story(server))
    assert "no byte for 400ms" in said
    assert "50.0 KB of 300.0 KB came" in said


def test_slow_is_not_stalled(tmp_path: pathlib.Path) -> None:
    """A source that takes longer than the stall limit, but never pauses so long, arrives."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path, dataclasses.replace(LIMITS, stall=0.3)) as held:
            assert await _ensure(held, server, pin=True) is not None

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(pace=0.1, piece=50_000))
        asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_a_connection_that_always_breaks_after_progress_is_not_given_up(tmp_path: pathlib.Path) -> None:
    """Attempts are counted only while they gain nothing: ten cuts, three attempts, one file."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            assert await _ensure(held, server, pin=True) is not None

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, *[Answer(cut=30_000)] * 10)
        asyncio.run(story(server))
        assert server.count(PATH) == 10
        assert server.sent == len(BODY)


def test_the_disk_is_asked_before_the_first_byte(tmp_path: pathlib.Path) -> None:
    """A file that does not fit beside the reserve is refused with the numbers, and nothing is left of it."""

    async def story(server: WeightsServer) -> str:
        limits = dataclasses.replace(LIMITS, reserve=10**15)
        async with store(tmp_path, limits) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return caught.value.said

    with WeightsServer({PATH: BODY}) as server:
        said = asyncio.run(story(server))
    assert "1000.0 TB of reserve do not fit" in said
    assert str(tmp_path) in said


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_file_larger_than_any_may_be_is_refused(framing: str, tmp_path: pathlib.Path) -> None:
    """The size cap holds whether or not the server says a length."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path, dataclasses.replace(LIMITS, largest=100_000)) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return caught.value.said

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(framing=framing))
        assert "at most 100.0 KB are taken" in asyncio.run(story(server))
        assert server.count(PATH) == 1


def test_a_redirect_is_followed_and_the_rest_is_asked_there_too(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Range and If-Range go where the redirect leads; its signature goes into no log."""
    caplog.set_level("DEBUG")

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            assert await _ensure(held, server, pin=True) is not None

    with WeightsServer({"/real": BODY}) as storage, WeightsServer() as server:
        server.behave(PATH, Answer(status=302, headers={"Location": storage.url("/real?signature=SECRET")}))
        storage.behave("/real", Answer(cut=120_000), Answer())
        asyncio.run(story(server))
        assert storage.sent == len(BODY)
    assert "again in" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/m.gguf", "redirects more than 8 times"),
        ("file:///etc/passwd", "file://, which is not followed"),
        ("http://[bad", "what is no address"),
        ("http://host:99999/", "what is no address"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_refused(location: str, said: str, tmp_path: pathlib.Path) -> None:
    """Loops and other schemes end with a reason."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return caught.value.said

    with WeightsServer() as server:
        server.behave(PATH, Answer(status=302, headers={"Location": location}))
        assert said in asyncio.run(story(server))


def test_the_servers_own_words_reach_the_message_without_its_control_characters(
    tmp_path: pathlib.Path,
) -> None:
    """Why a source refuses is told; an escape sequence in it is not obeyed."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH) + "?key=SECRET", BODY))
            return caught.value.said

    with WeightsServer() as server:
        server.behave(PATH, Answer(status=403, body=b"quota \x1b[31mexceeded"))
        said = asyncio.run(story(server))
    assert "it answered 403 (quota �[31mexceeded)" in said
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'<!DOCTYPE HTML>\n<html lang="en"><head><style>p { color: red }\n</style><!-- a\nb -->\n'
            b"<title>Error  response</title>\n</head><body><p>Error code: 404</p></body></html>",
            "it answered 404 (Error response)",
        ),
        (b"<html><head><script>" + b"x" * 5000, "it answered 404"),
        (
            b'{"error": "no model with size < 5"}\nmore',
            'it answered 404 ({"error": "no model with size < 5"})',
        ),
        (b"word " * 1000, f"it answered 404 ({'word ' * 40})"),
    ],
)
def test_of_a_page_one_line_is_told(body: bytes, said: str, tmp_path: pathlib.Path) -> None:
    """A refusal in HTML: its first words, and no tags."""

    async def story(server: WeightsServer) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return caught.value.said

    with WeightsServer() as server:
        server.behave(PATH, Answer(status=404, body=body))
        assert asyncio.run(story(server)).endswith(said)


def test_proxy_settings_that_make_no_sense_are_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped environment fails the fetch with its reason, not the agent."""

    async def story() -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned("http://127.0.0.1:9/m.gguf", BODY))
            return caught.value.said

    monkeypatch.setenv("ALL_PROXY", "gopher://proxy")
    assert "proxy settings of the environment" in asyncio.run(story())


def test_room_is_claimed_before_the_bytes_come(tmp_path: pathlib.Path) -> None:
    """The blocks of the whole file are taken at its start; its length still tells what has come."""

    async def story(server: WeightsServer) -> os.stat_result:
        async with store(tmp_path, dataclasses.replace(LIMITS, attempts=1, stall=0.2)) as held:
            with pytest.raises(Failed):
                await held.weights.ensure(pinned(server.url(PATH), BODY))
            return os.stat(held.root / held.names()[0] / "files" / "m.gguf")

    with WeightsServer({PATH: BODY}) as server:
        server.behave(PATH, Answer(stall=10_000))
        status = asyncio.run(story(server))
    assert status.st_size == 10_000
    assert status.st_blocks * 512 >= len(BODY)


def test_nobody_there_is_said(tmp_path: pathlib.Path) -> None:
    """A refused connection is tried again, then said with the address."""

    async def story(url: str) -> str:
        async with store(tmp_path) as held:
            with pytest.raises(Failed) as caught:
                await held.weights.ensure(pinned(url, BODY))
            return caught.value.said

    with WeightsServer() as server:
        url, address = server.url(PATH), server.address
    assert address in asyncio.run(story(url))


def test_proxies_of_the_environment_are_not_for_this_machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loopback source is asked directly though the environment names a proxy."""

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            assert await _ensure(held, server, pin=True) is not None

    with WeightsServer({PATH: BODY}) as server, WeightsServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.address}")
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        asyncio.run(story(server))
        assert server.count(PATH) == 1
        assert not proxy.asked
