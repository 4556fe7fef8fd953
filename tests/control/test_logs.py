"""Whose log is meant, and reading it piece by piece."""

import asyncio
import base64
import json
import pathlib
from collections.abc import AsyncGenerator
from typing import Any

from llmgw.control import logs
from llmgw.fleet import events
from llmgw.fleet.shard import ShardStatus
from llmgw.transport.http import Request, Response
from llmgw.wire import messages
from tests.control.plane import Plane, files
from tests.control.test_hands import node, served


class Agent:
    """A node that answers `Logs` from a text of its own."""

    def __init__(self, plane: Plane, text: bytes = b"", state: str = "ready") -> None:
        self.plane, self.text, self.state, self.answers = plane, text, state, True

    async def run(self) -> None:
        """Answer every command once, for ever."""
        done = 0
        while True:
            for command in self.plane.commands[done:]:
                if self.answers and isinstance(command, messages.Logs):
                    self.plane.asking.answered(self._holder(), self._result(command))
            done = len(self.plane.commands)
            await asyncio.sleep(0)

    def _holder(self) -> str:
        return next(iter(self.plane.loop.fleet.shards.values())).spec.node

    def _result(self, command: messages.Logs) -> messages.Result:
        at = command.offset or 0
        data = self.text[at : at + 10]
        piece = messages.LogPiece(
            replica=command.replica,
            data=base64.b64encode(data).decode(),
            offset=at,
            next=at + len(data),
            size=len(self.text),
            state=self.state,
        )
        return messages.Result(seq=command.seq, data=piece.model_dump())


async def read(plane: Plane, **query: str) -> list[dict[str, Any]]:
    """Every line of `GET /v1/logs`; what was refused is one line."""
    answer = await plane.api.answer(Request("GET", "/v1/logs", query, {}, b""))
    if isinstance(answer.body, bytes):
        return [json.loads(answer.body)["error"]]
    return [json.loads(line) async for line in answer.body]


def told(plane: Plane, agent: Agent, **query: str) -> list[dict[str, Any]]:
    async def story() -> list[dict[str, Any]]:
        task = asyncio.ensure_future(agent.run())
        try:
            async with asyncio.timeout(10):
                return await read(plane, **query)
        finally:
            task.cancel()

    return asyncio.run(story())


def output(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(line["data"]) for line in lines if "data" in line)


def test_a_log_comes_whole_and_ends(tmp_path: pathlib.Path) -> None:
    """Piece after piece until where it ended when it was asked for; a model's name is enough for its only replica."""
    plane = served(tmp_path)
    agent = Agent(plane, b"".join(b"line %d\n" % n for n in range(50)))
    lines = told(plane, agent, name="qwen", tail="all")
    assert output(lines) == agent.text
    assert lines[0]["replica"] in {key[0] for key in plane.loop.fleet.shards}
    assert [c.offset for c in plane.commands if isinstance(c, messages.Logs)][:3] == [None, 10, 20]


def test_who_was_cut_off_goes_on_at_the_byte_where_it_was(tmp_path: pathlib.Path) -> None:
    """Every line says where the next begins; asked from there, the rest comes, and nothing twice."""
    plane = served(tmp_path)
    agent = Agent(plane, b"".join(b"line %d\n" % n for n in range(50)))
    lines = told(plane, agent, name="qwen", tail="all")
    (cut,) = [line["next"] for line in lines if line.get("next") == 100]
    rest = told(plane, agent, name=lines[0]["replica"], offset=str(cut), tail="0")
    assert output(rest) == agent.text[100:]


def test_two_losses_of_one_size_are_told_twice(tmp_path: pathlib.Path) -> None:
    """What is gone is said each time; that there is no file yet is said once."""
    plane = served(tmp_path)

    class Forgetful(Agent):
        """Every other piece has lost what was before it."""

        def _result(self, command: messages.Logs) -> messages.Result:
            result = super()._result(command)
            return messages.Result(seq=result.seq, data={**result.data, "lost": 4096})

    lines = told(plane, Forgetful(plane, b"x" * 25), name="qwen", tail="all")
    assert len([line for line in lines if "are gone" in line.get("said", "")]) == 3


def test_following_ends_with_the_engine(tmp_path: pathlib.Path) -> None:
    """What it said last is there, then the reason why it ended."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards
    holder = plane.loop.fleet.shards[key].spec.node
    plane.hears(events.Reported(holder, (ShardStatus(*key, "failed", reason="exit 137 (memory)"),)))
    agent = Agent(plane, b"out of memory\n", state="failed")
    lines = told(plane, agent, name=key[0], follow="1")
    assert output(lines) == agent.text
    assert lines[-1]["said"] == f"rank 0 of {key[0]} has ended: exit 137 (memory)"


def test_a_node_that_leaves_or_is_silent_ends_it_with_a_sentence(tmp_path: pathlib.Path) -> None:
    """Nobody waits for an agent that went away, and one that is unreachable is not asked."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards
    holder = plane.loop.fleet.shards[key].spec.node

    async def story() -> dict[str, Any]:
        agent = Agent(plane)
        agent.answers = False
        task = asyncio.ensure_future(read(plane, name=key[0]))
        await asyncio.sleep(0.01)
        assert plane.commands
        plane.asking.left(holder)
        return (await task)[0]

    assert asyncio.run(story())["said"] == (
        f"cannot read the log of rank 0 of {key[0]} on {holder}: its agent went away"
    )
    plane.hears(events.Disconnected(holder))
    plane.passes(20)
    said = told(plane, Agent(plane), name=key[0])[0]["said"]
    assert said == (
        f"cannot read the log of rank 0 of {key[0]}: node {holder} is Unreachable, it spoke last 20s ago"
    )


def test_the_one_before_is_remembered_after_it_is_gone(tmp_path: pathlib.Path) -> None:
    """A failed replica is rebuilt elsewhere under another id: `--previous` still finds it, and so does its own id."""
    plane = served(tmp_path)
    (old,) = plane.loop.fleet.shards
    holder = plane.loop.fleet.shards[old].spec.node
    plane.hears(events.Reported(holder, (ShardStatus(*old, "failed", reason="exit 1"),)))
    plane.hears(events.Reported(holder, (ShardStatus(*old, "stopping"),)))
    plane.hears(events.Reported(holder, (ShardStatus(*old, "gone"),)))
    plane.loop.decide()
    (new,) = plane.loop.fleet.shards
    assert new != old
    for target in (
        plane.logs.target("qwen", 0, previous=True),
        plane.logs.target(new[0], 0, previous=True),
        plane.logs.target(old[0], 0, previous=False),
    ):
        assert (target.node, target.replica) == (holder, old[0])


def test_the_one_before_of_a_model_needs_no_replica_named(tmp_path: pathlib.Path) -> None:
    """Two replicas run and one has failed: `logs qwen --previous`, which `why` offers, is the failed one."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=2)})
    plane.loop.decide()
    failed, _ = sorted(plane.loop.fleet.shards)
    plane.hears(events.Reported("n0", (ShardStatus(*failed, "failed", reason="exit 1"),)))
    for state in ("stopping", "gone"):
        plane.hears(events.Reported("n0", (ShardStatus(*failed, state),)))
    plane.loop.decide()
    assert len(plane.loop.fleet.shards) == 2
    assert failed not in plane.loop.fleet.shards
    assert plane.logs.target("qwen", 0, previous=True).replica == failed[0]


def test_what_is_not_meant_clearly_is_refused(tmp_path: pathlib.Path) -> None:
    """Two replicas of a model, a rank that is none, a name that is none: each with what would do."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(node("n0")))
    plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=2)})
    plane.loop.decide()
    names = sorted(key[0] for key in plane.loop.fleet.shards)
    agent = Agent(plane)
    assert told(plane, agent, name="qwen")[0]["said"] == (
        f"cannot tell which replica of qwen is meant: it has {', '.join(names)}"
    )
    assert told(plane, agent, name=names[0], rank="7")[0]["said"].endswith("it has 0")
    assert told(plane, agent, name="qwen/zzzz")[0]["said"].startswith("cannot find replica qwen/zzzz")
    assert told(plane, agent, name="qwem")[0]["help"] == "did you mean `qwen`?"
    assert "a whole number is needed" in told(plane, agent, name="qwen", tail="-1")[0]["said"]


def test_readers_are_bounded_and_leave_nothing(tmp_path: pathlib.Path) -> None:
    """So many logs at a time; one that is closed by its reader makes room."""
    plane = served(tmp_path)
    (key,) = plane.loop.fleet.shards

    async def story() -> None:
        agent = Agent(plane, b"x" * 100)
        task = asyncio.ensure_future(agent.run())
        query = {"name": key[0], "follow": "1", "tail": "all"}
        open_ones: list[AsyncGenerator[bytes, None]] = []
        for _ in range(logs.STREAMS):
            answer: Response = await plane.api.answer(Request("GET", "/v1/logs", query, {}, b""))
            assert not isinstance(answer.body, bytes)
            await anext(answer.body)
            open_ones.append(answer.body)
        assert "are being read" in (await read(plane, **query))[0]["said"]
        await open_ones.pop().aclose()
        answer = await plane.api.answer(Request("GET", "/v1/logs", query, {}, b""))
        assert answer.status == 200
        for pieces in open_ones:
            await pieces.aclose()
        task.cancel()

    asyncio.run(story())


def test_streams_are_counted_before_they_are_asked_for(tmp_path: pathlib.Path) -> None:
    """However many come in one instant: so many are read as may be, and a slow node lets no more in."""
    plane = served(tmp_path)
    agent = Agent(plane, b"hello\n", state="")
    name = next(iter(plane.loop.fleet.shards))[0]

    async def story() -> None:
        request = Request("GET", "/v1/logs", {"name": name, "follow": "1"}, {}, b"")
        coming = [asyncio.create_task(plane.api.answer(request)) for _ in range(3 * logs.STREAMS)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(plane.commands) == logs.STREAMS
        answering = asyncio.create_task(agent.run())
        answers = [await each for each in coming]
        answering.cancel()
        bodies = [each.body for each in answers if not isinstance(each.body, bytes)]
        assert (len(bodies), plane.logs._streams) == (logs.STREAMS, logs.STREAMS)
        for body in bodies:  # nobody has read a line of most of them
            await body.aclose()
        assert plane.logs._streams == 0

    asyncio.run(story())
