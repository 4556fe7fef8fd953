"""The whole agent with the real llama.cpp, against a control plane of a few lines."""

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import signal
import uuid
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from llmgw.agent import marks, serve
from llmgw.agent.health import HealthTimers
from llmgw.agent.marks import Identity
from llmgw.agent.records import Record, Records
from llmgw.agent.state import Obeyed, StateDir
from llmgw.agent.supervisor import SupervisorTimers
from llmgw.errors import Failed
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import Peer, ShardSpec, ShardStatus
from llmgw.wire import messages as wire
from tests.agent.house import alive, until
from tests.agent.making import assign, spec, start, stop
from tests.agent.test_connection import Control
from tests.support import scripted_model
from tests.support.engines import LLAMA_SERVER
from tests.support.ports import free_block
from tests.transport.harness import listening

QUICK = SupervisorTimers(health=HealthTimers(look=0.02, every=0.1))
SENTENCE = "I am alpha, and this answer is fixed."


class Lab:
    """State directories of agents, a model, and the control plane they register at."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.control = root, Control(heartbeat=0.1)
        self.model = scripted_model.write(root / "alpha.gguf", SENTENCE)
        self.ports = {name: free_block(40).start for name in ("a", "b")}
        self.seq = 100

    @contextlib.asynccontextmanager
    async def agent(self, port: int, name: str = "a") -> AsyncIterator[str]:
        """An agent at the control plane's `port`, until it is cancelled. Gives its node id."""
        up, heard = asyncio.Event(), list[str]()
        settings = serve.Settings(
            state_dir=self.root / name,
            name=name,
            control_port=port,
            ports=(self.ports[name], self.ports[name] + 39),
            engines={"llamacpp": str(LLAMA_SERVER)},
            timers=QUICK,
            inventory_every=0.2,
        )
        work = asyncio.ensure_future(serve.run(settings, ready=lambda node: (heard.append(node), up.set())))
        waiting = asyncio.ensure_future(up.wait())
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if work.done():
            work.result()
        try:
            yield heard[0]
            assert not work.done()
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    def joined(self, streams: int) -> bool:
        """Whether so many streams have opened, and the newest is past its registration."""
        return len(self.control.streams) == streams and "heartbeat" in self.control.kinds()

    def statuses(self, of: ShardSpec) -> list[ShardStatus]:
        """Everything that was reported of a shard, over all streams."""
        said = [message for stream in self.control.streams for message in stream]
        reports = [
            status for message in said if isinstance(message, wire.Report) for status in message.statuses
        ]
        return [status for status in reports if status.key == of.key]

    def state(self, of: ShardSpec) -> str:
        """Its newest reported state."""
        return next((status.state for status in reversed(self.statuses(of))), "")

    async def order(self, stream: int, command: wire.Command) -> None:
        """Send a command on one of the streams, as the next in its sequence."""
        self.seq += 1
        numbered = command.model_copy(update={"seq": self.seq, "epoch": self.control.epoch})
        await self.control.channels[stream].send(wire.encode(numbered))

    def spec(self, node: str, **changes: object) -> ShardSpec:
        """A shard of `node` with the lab's model."""
        source = f"file://{self.model}"
        return spec(nodes=(node,), source=source, port=self.ports["a"], **changes)  # type: ignore[arg-type]

    def clean(self) -> None:
        """End every engine of the lab's agents."""
        for path in self.root.glob("*/node-id"):
            for mark in marks.scan(path.read_text()):
                os.kill(mark.pid, signal.SIGKILL)


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> Iterator[Lab]:
    """A lab that leaves nothing running."""
    made = Lab(tmp_path)
    yield made
    made.clean()


def test_the_real_engine_serves_survives_the_agent_and_stops(lab: Lab) -> None:
    """Assigned, started, ready; the agent is restarted: same pid, told at once; then stopped."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port):
            async with lab.agent(port) as node:
                shard = lab.spec(node)
                await until(lambda: lab.joined(1), "registration")
                await lab.order(0, assign(shard))
                await until(lambda: lab.state(shard) == "held", "held")
                await lab.order(0, start(shard))
                await until(lambda: lab.state(shard) == "ready", "ready")
                assert SENTENCE in await asyncio.to_thread(answer, shard)
            pid = lab.statuses(shard)[-1].pid
            assert alive(pid)
            async with lab.agent(port) as again:
                await until(lambda: lab.joined(2), "second registration")
                register = lab.control.streams[1][0]
                assert isinstance(register, wire.Register)
                ((told, status),) = register.shards
                assert (again, told) == (node, shard)
                assert (status.pid, status.state, status.adopted) == (pid, "ready", True)
                await lab.order(1, stop(shard))
                await until(lambda: lab.state(shard) == "gone", "gone")
                assert not alive(pid)

    asyncio.run(story())


def answer(shard: ShardSpec) -> str:
    """What the engine says."""
    body = {"model": shard.model, "messages": [{"role": "user", "content": "Who are you?"}]}
    url = f"http://127.0.0.1:{shard.port}/v1/chat/completions"
    said = httpx.post(url, json=body, trust_env=False, timeout=10)
    return str(said.json()["choices"][0]["message"]["content"])


def test_a_gang_of_two_nodes_joins_and_its_worker_takes_rank_0_along(lab: Lab) -> None:
    """The worker is ready only once rank 0 is attached; when it is killed, rank 0 is seen to fail."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port), lab.agent(port) as a:
            await until(lambda: lab.joined(1), "first node")
            async with lab.agent(port, "b") as b:
                await until(lambda: lab.joined(2), "second node")
                peers = (
                    Peer(0, a, "127.0.0.1", lab.ports["a"]),
                    Peer(1, b, "127.0.0.1", lab.ports["b"]),
                )
                first, worker = gang(lab, peers, 0), gang(lab, peers, 1)
                for stream, shard in ((0, first), (1, worker)):
                    await lab.order(stream, assign(shard))
                    await until(lambda shard=shard: lab.state(shard) == "held", "held")
                await lab.order(1, start(worker))
                await until(lambda: lab.state(worker) == "started", "worker started")
                await lab.order(0, start(first))
                await until(lambda: (lab.state(first), lab.state(worker)) == ("ready", "ready"), "the gang")
                states = [status.state for status in lab.statuses(worker)]
                assert "ready" not in states[: states.index("started") + 1]
                os.kill(lab.statuses(worker)[-1].pid, signal.SIGKILL)
                await until(lambda: lab.state(worker) == "failed", "the worker's failure")
                for stream, shard in ((0, first), (1, worker)):
                    await lab.order(stream, stop(shard, grace=2))
                    await until(lambda shard=shard: lab.state(shard) == "gone", "gone")

    asyncio.run(story())


def gang(lab: Lab, peers: tuple[Peer, ...], rank: int) -> ShardSpec:
    """One rank of a replica over the lab's two nodes."""
    return dataclasses.replace(lab.spec(peers[0].node), peers=peers, rank=rank)


def test_a_second_agent_on_one_directory_is_refused(lab: Lab) -> None:
    """The holder is named, and what would help."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port), lab.agent(port):
            with pytest.raises(Failed, match=rf"another agent \(pid {os.getpid()}\) runs on it") as caught:
                async with lab.agent(port):
                    pass
            assert "--state-dir" in caught.value.help

    asyncio.run(story())


def test_a_node_is_who_it_was(lab: Lab) -> None:
    """Its id and the epoch it obeyed outlive the agent; its instance does not."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port):
            for n in range(2):
                async with lab.agent(port):
                    await until(lambda n=n: lab.joined(n + 1), "registration")
        first, second = (stream[0] for stream in lab.control.streams)
        assert isinstance(first, wire.Register)
        assert isinstance(second, wire.Register)
        assert first.info.id == second.info.id
        assert first.info.instance != second.info.instance
        assert (first.epoch, second.epoch, second.revision) == (0, 3, 7)
        assert [engine.name for engine in second.info.engines or ()] == ["llamacpp"]
        assert second.info.gpus is None or second.info.gpus

    asyncio.run(story())


@pytest.mark.parametrize("left", [None, b"", b"0a1b2c", b"0a1b2c3d4e5g"])
def test_a_node_without_its_id_is_not_a_new_one(tmp_path: pathlib.Path, left: bytes | None) -> None:
    """The file is gone, empty, cut or wrong: the records that agree tell who this is, else nothing is started."""
    path, records = tmp_path / "node-id", Records(tmp_path / "shards")
    record = Record(spec(nodes=("0a1b2c3d4e5f",)), Identity("cookie"))

    def put() -> None:
        if left is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(left)

    put()
    if left is not None:
        with pytest.raises(Failed, match=r"cannot read .*node-id: it is (empty|not 12 hex)") as refused:
            StateDir(tmp_path).node()
        assert "llmgw nodes" in refused.value.help
        assert path.read_bytes() == left
    records.write(record)
    state = StateDir(tmp_path)
    assert (state.node(), path.read_text()) == ("0a1b2c3d4e5f", "0a1b2c3d4e5f")
    assert "this is node 0a1b2c3d4e5f, by the records of what it runs" in state.recovered[0]
    assert StateDir(tmp_path).node() == "0a1b2c3d4e5f"
    path.write_text("0a1b2c3d4e50")
    with pytest.raises(Failed, match=r"says 0a1b2c3d4e50, and the records in .* are of 0a1b2c3d4e5f"):
        StateDir(tmp_path).node()
    put()
    records.write(dataclasses.replace(record, spec=spec("beta/aaaa", nodes=("another",))))
    with pytest.raises(Failed, match="name 2 nodes"):
        StateDir(tmp_path).node()


def test_an_obeyed_epoch_that_cannot_be_read_is_not_taken_for_zero(lab: Lab) -> None:
    """An older control plane must not win because a file is damaged."""

    async def story() -> None:
        (lab.root / "a").mkdir()
        (lab.root / "a" / "obeyed").write_text(json.dumps({"epoch": "many"}))
        with pytest.raises(Failed, match=r"cannot read .*obeyed"):
            async with lab.agent(1):
                pass

    asyncio.run(story())


def test_a_collect_is_answered_entry_by_entry(lab: Lab) -> None:
    """What is not there is not removed, and the answer carries the sequence of the question."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port), lab.agent(port):
            await until(lambda: lab.joined(1), "registration")
            entry = CachedWeights(uuid.uuid4().hex * 2, "https://x/y", 1)
            await lab.order(0, wire.Collect(epoch=1, seq=1, revision=7, entries=(entry,)))
            await until(lambda: results(lab), "an answer")
            (result,) = results(lab)
            assert result.seq == lab.seq
            ((row),) = result.data["entries"]
            assert (row["cache_name"], row["removed"]) == (entry.cache_name, False)

    asyncio.run(story())


def results(lab: Lab) -> list[wire.Result]:
    """The answers of the first stream."""
    return [message for message in lab.control.streams[0] if isinstance(message, wire.Result)]


def test_an_epoch_that_the_disk_does_not_take_is_obeyed_all_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is a warning that the control plane hears; the epoch is written once there is room."""
    obey, free = StateDir.obey, asyncio.Event()

    def obeys(state: StateDir, obeyed: Obeyed) -> None:
        if not free.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        obey(state, obeyed)

    def warned() -> list[tuple[str, ...]]:
        said = [message for message in lab.control.streams[0] if isinstance(message, wire.Report)]
        return [message.info.warnings for message in said if message.info is not None]

    async def story() -> None:
        monkeypatch.setattr(StateDir, "obey", obeys)
        async with listening(lab.control.serve) as (_, port), lab.agent(port):
            await until(lambda: lab.joined(1), "registration")
            said = f"cannot remember epoch 3 in {lab.root / 'a'}: No space left on device"
            await until(lambda: (said,) in warned(), "the warning")
            assert not (lab.root / "a" / "obeyed").exists()
            free.set()
            await until((lab.root / "a" / "obeyed").exists, "the epoch on disk")
            await until(lambda: warned()[-1] == (), "no warning any more")

    asyncio.run(story())


def test_a_full_disk_keeps_no_agent_from_its_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid in the lock is for people: what holds is the lock."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    with StateDir(tmp_path).held(), pytest.raises(Failed, match=r"another agent \(pid unknown\)"):
        StateDir(tmp_path).held().__enter__()


def test_a_directory_that_cannot_be_made_is_said(tmp_path: pathlib.Path) -> None:
    """In words, and before anything runs."""
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match=r"cannot use .*/file/a: Not a directory"):
        StateDir(tmp_path / "file" / "a").held().__enter__()


def test_what_a_newer_release_kept_beside_the_epoch_stays(tmp_path: pathlib.Path) -> None:
    """An agent that was rolled back forgets no key that it does not know."""
    state = StateDir(tmp_path)
    (tmp_path / "obeyed").write_text('{"epoch": 7, "revision": 3, "schema": 99, "fence": "x"}')
    assert state.obeyed() == Obeyed(7, 3)
    state.obey(Obeyed(8, 4))
    kept = json.loads((tmp_path / "obeyed").read_text())
    assert kept == {"epoch": 8, "revision": 4, "schema": 99, "fence": "x"}


def test_a_check_runs_the_engine_and_is_told_from_then_on(lab: Lab) -> None:
    """The real engine says its version because it was asked to; the next registration still knows it."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port):
            async with lab.agent(port):
                await until(lambda: lab.joined(1), "registration")
                register = lab.control.streams[0][0]
                assert isinstance(register, wire.Register)
                assert register.info.engines is not None
                assert [engine.works for engine in register.info.engines] == [None]
                await lab.order(0, wire.Check(epoch=0, seq=0))
                await until(lambda: "result" in lab.control.kinds(), "the answer")
            async with lab.agent(port):
                await until(lambda: lab.joined(2), "second registration")
                register = lab.control.streams[1][0]
                assert isinstance(register, wire.Register)
                assert register.info.engines is not None
                (engine,) = register.info.engines
                assert (engine.works, engine.checked.startswith("version")) == (True, True)

    asyncio.run(story())


def test_a_check_that_cannot_be_made_is_answered(lab: Lab) -> None:
    """A directory where its output goes, as any engine could leave one: told in words, and once it is gone it is made."""

    async def story() -> None:
        async with listening(lab.control.serve) as (_, port), lab.agent(port):
            await until(lambda: lab.joined(1), "registration")
            there = lab.root / "a" / "check-llamacpp.out"
            there.mkdir()
            await lab.order(0, wire.Check(epoch=0, seq=0))
            await until(lambda: results(lab), "the answer")
            (first,) = results(lab)
            assert (first.ok, first.said) == (False, f"cannot check the engines: {there}: Is a directory")
            there.rmdir()
            await lab.order(0, wire.Check(epoch=0, seq=0))
            await until(lambda: len(results(lab)) == 2, "the second answer")
            assert results(lab)[1].data["engines"][0]["works"] is True

    asyncio.run(story())
