"""Pieces of engines' output as the control plane asks for them."""

import asyncio
import base64
import dataclasses
import pathlib

from llmgw.agent import log_answers, logs
from llmgw.agent.log_answers import LogAnswers
from llmgw.fleet.shard import ShardKey
from llmgw.wire import bounds
from llmgw.wire import messages as wire

KEY: ShardKey = ("alpha/r1", 0)


@dataclasses.dataclass
class Here:
    """A shard that is here."""

    state: str = "ready"


def asked(**more: object) -> wire.Logs:
    return wire.Logs.model_validate({"epoch": 1, "seq": 7, "model": "alpha", "replica": "alpha/r1", **more})


def piece(result: wire.Result) -> wire.LogPiece:
    assert result.ok, result.said
    return wire.LogPiece.model_validate(result.data)


def test_a_piece_and_the_next(tmp_path: pathlib.Path) -> None:
    """The answer says where the next piece begins; the largest is within what is believed of an agent."""
    logs.path_of(tmp_path, KEY).write_bytes(b"\xff" * (wire.LOG_PIECE + 5))

    async def story() -> None:
        answers = LogAnswers(tmp_path)
        result = await answers.answer(asked(), {KEY: Here()})
        assert bounds.flaw(result) == ""
        first = piece(result)
        assert (len(base64.b64decode(first.data)), first.state) == (wire.LOG_PIECE, "ready")
        second = piece(await answers.answer(asked(offset=first.next), {KEY: Here()}))
        assert base64.b64decode(second.data) == b"\xff" * 5

    asyncio.run(story())


def test_who_waits_gets_what_comes(tmp_path: pathlib.Path) -> None:
    """Nothing there yet: the answer comes with the next line, or when the engine has ended."""
    log = logs.path_of(tmp_path, KEY)
    log.write_bytes(b"one\n")

    async def story() -> None:
        answers, shard = LogAnswers(tmp_path), Here()
        waiting = asyncio.ensure_future(answers.answer(asked(offset=4, wait=9.0), {KEY: shard}))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        with log.open("ab") as file:
            file.write(b"two\n")
        assert base64.b64decode(piece(await waiting).data) == b"two\n"
        shard.state = "failed"
        over = piece(await answers.answer(asked(offset=8, wait=9.0), {KEY: shard}))
        assert (over.data, over.state) == ("", "failed")

    asyncio.run(story())


def test_what_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    """No file, no predecessor, too many readers: each has its own words."""

    async def story() -> None:
        answers = LogAnswers(tmp_path)
        assert piece(await answers.answer(asked(), {KEY: Here("fetching")})).missing
        none = await answers.answer(asked(previous=True), {})
        assert (none.ok, none.said) == (False, "no earlier log of rank 0 of alpha is kept on this node")
        logs.path_of(tmp_path, KEY).touch()
        readers = [
            asyncio.ensure_future(answers.answer(asked(wait=9.0), {KEY: Here()}))
            for _ in range(log_answers.MOST)
        ]
        await asyncio.sleep(0.05)
        assert "are being read" in (await answers.answer(asked(), {KEY: Here()})).said
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert (await answers.answer(asked(), {KEY: Here()})).ok

    asyncio.run(story())


def test_a_name_cannot_leave_the_directory(tmp_path: pathlib.Path) -> None:
    """Whatever is asked for, a file beside the logs is none."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret.0.log").write_text("secret")

    async def story() -> None:
        for name in ("../secret", "/etc/passwd", "..%2Fsecret"):
            found = piece(await LogAnswers(tmp_path / "logs").answer(asked(replica=name), {}))
            assert found.missing

    asyncio.run(story())


def test_an_older_agent_says_that_it_cannot() -> None:
    """A release that does not know Logs answers the sequence number, so nobody waits."""
    data = wire.encode(asked()).replace(b'"logs"', b'"logs of a later release"')
    unknown = wire.decode_down(data)
    assert isinstance(unknown, wire.Unknown)
    assert (unknown.kind, unknown.seq) == ("logs of a later release", 7)
    assert wire.decode_down(wire.encode(asked(tail=3))) == asked(tail=3)
