"""One node with real processes: what lives, what ends, and what is told about it."""

import asyncio
import dataclasses
import errno
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from llmgw.agent import procfs
from llmgw.agent.records import Record
from llmgw.kit.threads import Threads
from tests.agent.house import TIMERS, Here, House, alive, gone, launched, ready, until
from tests.agent.making import assign, start, stop


@pytest.fixture(params=[True, False], ids=["cgroup", "session"])
def house(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[House]:
    """A node, with cgroups and without."""
    house = House(tmp_path, with_cgroups=request.param)
    if request.param and house.cgroups is None:
        pytest.skip("cgroup v2 is not writable here")
    yield house
    house.clean()


def test_a_shard_starts_answers_and_ends(house: House) -> None:
    """From Assign to gone with a real process, each state reported once and nothing left."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            assert alive(pid)
            await gone(agent, shard)
            assert not alive(pid)
            assert house.states(shard.key) == [
                "assigned",
                "held",
                "starting",
                "started",
                "ready",
                "stopping",
                "gone",
            ]
            assert list((house.root / "shards").iterdir()) == []

    asyncio.run(story())


def test_the_engine_sees_its_mark_and_nothing_of_ours(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags in disguise and secrets of the agent's environment do not reach an engine; GPUs do, in order."""
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("HARMLESS", "kept")

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(gpus=("GPU-2", "GPU-1"))
            env = procfs.environ(await ready(house, agent, shard))
            assert not {"LLAMA_ARG_PORT", "HF_TOKEN", "LD_PRELOAD"} & set(env)
            assert (env["HARMLESS"], env["SPT_NOENV"], env["LLMGW_SHARD"]) == ("kept", "1", "alpha/x7qf:0")
            assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("GPU-2,GPU-1", "PCI_BUS_ID")
            assert len(env["LLMGW_COOKIE"]) == 32
            await gone(agent, shard)

    asyncio.run(story())


def test_nothing_the_engine_holds_depends_on_the_agent(house: House) -> None:
    """Its own session, /dev/null, one private log file: no pipe, no terminal, no inherited descriptor."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            stat = procfs.stat(pid)
            assert stat is not None
            assert stat.session == pid
            held = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in ("0", "1", "2")}
            (log,) = (house.root / "logs").iterdir()
            assert held == {"0": "/dev/null", "1": str(log), "2": str(log)}
            assert log.stat().st_mode & 0o777 == 0o600
            assert not [
                link
                for fd in os.listdir(f"/proc/{pid}/fd")
                if "pipe" in (link := os.readlink(f"/proc/{pid}/fd/{fd}"))
            ]
            await gone(agent, shard)

    asyncio.run(story())


@pytest.mark.parametrize("does", ["workers", "workers ignores-term"])
def test_stop_ends_the_whole_tree(house: House, does: str) -> None:
    """Children that ignore TERM, one of them in a session of its own, are gone before `gone` is said."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does=does)
            await ready(house, agent, shard)
            tree = house.marked()
            assert len(tree) == 3
            await gone(agent, shard)
            assert [pid for pid in tree if alive(pid)] == []

    asyncio.run(story())


@pytest.mark.parametrize("does", ["cleared twins", "cleared twins silent"])
def test_an_engine_without_our_environment_is_ours(house: House, does: str) -> None:
    """A wrapper that ends in `exec env -i` leaves no cookie: stopped or too late, nobody is left when it is told."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does=does, start_deadline=1.0 if "silent" in does else 600.0)
            await launched(agent, shard)
            pid = agent.state.shards[shard.key].pid
            await until(lambda: len(in_session(pid)) == 3, "its twins")
            if not house.cgroups:
                assert house.marked() == []
            tree = in_session(pid)
            assert agent.kin() == set(tree)
            if "silent" in does:
                await until(lambda: house.last(shard.key).state == "failed", "its deadline")
                await until(lambda: agent.state.shards[shard.key].swept, "swept")
                assert in_session(pid) == []
            await gone(agent, shard)
            assert [pid for pid in tree if alive(pid)] == []

    asyncio.run(story())


def in_session(number: int) -> list[int]:
    """Who lives in a session."""
    stats = (procfs.live(pid) for pid in procfs.pids())
    return sorted(stat.pid for stat in stats if stat is not None and stat.session == number)


def test_a_leader_that_dies_takes_its_workers_along(house: House) -> None:
    """kill -9 of the head: the shard fails at once, and its workers do not keep the GPUs."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="workers")
            pid = await ready(house, agent, shard)
            tree = house.marked()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == "killed by SIGKILL"
            await until(lambda: agent.state.shards[shard.key].swept, "swept")
            assert [pid for pid in tree if alive(pid)] == []
            await gone(agent, shard)

    asyncio.run(story())


def test_a_group_finds_who_wiped_everything_else(tmp_path: pathlib.Path) -> None:
    """A grandchild with an empty environment and a session of its own is still in the shard's cgroup."""
    house = House(tmp_path)
    if house.cgroups is None:
        pytest.skip("cgroup v2 is not writable here")

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="wiped")
            await ready(house, agent, shard)
            await until(lambda: any(procfs.environ(pid) == {} for pid in house.marked()), "wiped child")
            tree = house.marked()
            await gone(agent, shard)
            assert [pid for pid in tree if alive(pid)] == []

    try:
        asyncio.run(story())
    finally:
        house.clean()


def test_a_start_that_dies_says_the_engines_own_last_error(house: House) -> None:
    """The exit status and the line that helps, not the last line."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="dies")
            await launched(agent, shard)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            said = house.last(shard.key).reason
            assert said == "exit 3: error: cannot load the model: it is made of cheese"
            (failure,) = agent.state.failures(0)
            assert (failure.model, failure.count) == ("alpha", 1)
            await gone(agent, shard)

    asyncio.run(story())


@pytest.mark.parametrize("listens", [True, False])
def test_a_port_that_is_held_is_no_start(house: House, *, listens: bool) -> None:
    """A foreign listener in the shard's block, or a connection from there: refused before exec, with its pid."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            first, second = (("127.0.0.1", shard.port + n) for n in ((3, 15) if listens else (15, 3)))
            with socket.create_server(first), socket.create_connection(first, source_address=second):
                await launched(agent, shard)
                assert house.last(shard.key).reason == f"port {shard.port + 3} is held by pid {os.getpid()}"
                assert house.marked() == []
                await gone(agent, shard)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"does": "a\0b"}, "its variable 'DOES'"),
        ({"env": (("A=B", "c"),)}, "its variable 'A=B'"),
        ({"env": (("", "c"),)}, "its variable ''"),
        ({"args": (("chat_template", "a\0b"),)}, "its argument "),
        ({"replica": "alpha/a\0b"}, "its replica's name"),
        ({"gpus": ("GPU-1\0",)}, "a card's name"),
    ],
)
def test_what_no_process_can_be_given_fails_its_shard(
    house: House, changes: dict[str, object], names: str
) -> None:
    """The catalog refuses such values and a message can have them: the reason names which, the agent lives on."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(**{name: value for name, value in changes.items() if name != "env"})  # type: ignore[arg-type]
            if "env" in changes:
                profile = dataclasses.replace(shard.profile, env=changes["env"])  # type: ignore[arg-type]
                shard = dataclasses.replace(shard, profile=profile)
            await launched(agent, shard)
            assert f": {names}" in house.last(shard.key).reason
            assert house.marked() == []
            await gone(agent, shard)
            assert list((house.root / "shards").iterdir()) == []

    asyncio.run(story())


def test_an_engine_that_is_not_here_is_named(house: House) -> None:
    """No program, no process: the reason says which engine."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(engine="vllm")
            await launched(agent, shard)
            assert house.last(shard.key).reason == "cannot run vllm: it is not installed on this node"
            await gone(agent, shard)

    asyncio.run(story())


def test_a_deadline_ends_a_start_and_says_what_it_waited_for(house: House) -> None:
    """An engine that never listens is ended at its deadline, which counts from its exec."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="silent workers", start_deadline=0.5)
            await launched(agent, shard)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == (
                "not ready 500ms after its start (start_deadline); it was started: "
                f"port {shard.port} refuses connections"
            )
            await until(lambda: house.marked() == [], "swept")
            await gone(agent, shard)

    asyncio.run(story())


def test_eight_shards_start_at_once(house: House) -> None:
    """Eight starts in one instant are eight engines on eight ports."""

    async def story() -> None:
        async with house.agent() as agent:
            shards = [house.spec(f"alpha/r{n}") for n in range(8)]
            for shard in shards:
                agent.order(assign(shard))
            await until(lambda: all(agent.state.shards[s.key].state == "held" for s in shards), "held")
            for shard in shards:
                agent.order(start(shard))
            await until(lambda: all(agent.state.shards[s.key].state == "ready" for s in shards), "ready")
            assert len(set(house.marked())) == 8
            for shard in shards:
                agent.order(stop(shard, grace=1))
            await until(lambda: agent.state.shards == {}, "gone")
            assert house.marked() == []

    asyncio.run(story())


def test_a_stop_that_overtakes_the_launch_wins(house: House) -> None:
    """Start and Stop in one breath leave nothing behind."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="workers")
            agent.order(assign(shard))
            await until(lambda: agent.state.shards[shard.key].state == "held", "held")
            agent.order(start(shard))
            await gone(agent, shard)
            assert house.marked() == []
            assert house.states(shard.key)[-2:] == ["stopping", "gone"]

    asyncio.run(story())


def test_a_log_is_bounded_while_the_engine_writes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is given back to the disk; offsets and the newest lines stay."""
    monkeypatch.setattr("llmgw.agent.supervisor.Supervisor.LOG_KEPT", 8192)

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            await ready(house, agent, shard)
            (log,) = (house.root / "logs").iterdir()
            with log.open("ab") as file:
                file.write(b"x" * 2**20)
            await until(lambda: log.stat().st_blocks * 512 <= 16384, "trimmed")
            assert log.stat().st_size > 2**20
            await gone(agent, shard)

    asyncio.run(story())


def test_a_log_is_cut_at_the_end_of_its_shard_and_at_an_agents_start(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that said a lot and ended before the next look, and one that did while no agent was there."""
    monkeypatch.setattr("llmgw.agent.supervisor.Supervisor.LOG_KEPT", 8192)
    seldom = dataclasses.replace(TIMERS, trim=3600.0)

    async def story() -> None:
        async with house.agent(timers=seldom) as agent:
            shard = house.spec()
            await ready(house, agent, shard)
            (log,) = (house.root / "logs").iterdir()
            log.write_bytes(b"x" * 2**20)
            await asyncio.sleep(0.3)
            assert log.stat().st_blocks * 512 == 2**20
            await gone(agent, shard)
            await until(lambda: log.stat().st_blocks * 512 <= 16384, "cut at its end")
        log.write_bytes(b"x" * 2**20)
        async with house.agent(timers=seldom):
            await until(lambda: log.stat().st_blocks * 512 <= 16384, "cut at the start")

    asyncio.run(story())


def test_a_record_that_cannot_be_written_starts_nothing(house: House) -> None:
    """A disk that refuses the intent: no process, no group, and the reason in words."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            agent.order(assign(shard))
            await until(lambda: agent.state.shards[shard.key].state == "held", "held")
            (house.root / "shards").rename(house.root / "elsewhere")
            agent.order(start(shard))
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == (
                f"cannot record its launch in {house.root / 'shards'}: No such file or directory"
            )
            assert house.marked() == []
            if house.cgroups is not None:
                groups = house.cgroups.directory(house.cgroups.base).glob("*/")
                assert [path.name for path in groups if path.is_dir()] == []
            (house.root / "elsewhere").rename(house.root / "shards")
            await gone(agent, shard)

    asyncio.run(story())


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_record_is_written_once_the_disk_takes_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a warning while it is full; what it did not take is not forgotten."""
    write, free = house.records.write, threading.Event()

    def writes(record: Record) -> None:
        if record.state == "running" and not free.is_set():
            raise FULL
        write(record)

    async def story() -> None:
        monkeypatch.setattr(house.records, "write", writes)
        async with house.agent() as agent:
            shard = house.spec()
            await ready(house, agent, shard)
            (said,) = agent.warnings()
            assert said == (
                f"cannot write the record of alpha/x7qf:0 in {house.root / 'shards'}: No space left on device"
            )
            free.set()
            await until(lambda: not agent.warnings(), "the record")
            (record,) = house.records.read().records
            assert record.reached == "ready"
            assert record.identity.ticks < record.reached_at <= procfs.ticks()
            await gone(agent, shard)

    asyncio.run(story())


def test_what_was_forked_and_cannot_be_held_is_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left for its pidfd: a failed launch, and no process that nobody knows."""
    forked: list[int] = []

    def refuse(pid: int) -> int:
        forked.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            agent.order(assign(shard))
            await until(lambda: agent.state.shards[shard.key].state == "held", "held")
            with monkeypatch.context() as patch:
                patch.setattr(os, "pidfd_open", refuse)
                agent.order(start(shard))
                await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert "Too many open files" in house.last(shard.key).reason
            assert [alive(pid) for pid in forked] == [False]
            await gone(agent, shard)

    asyncio.run(story())


def test_a_sweep_that_cannot_look_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to see anybody is no proof that nobody is left."""
    look, refused = procfs.pids, list[str]()

    def pids() -> Iterator[int]:
        if len(refused) < 5:
            refused.append("")
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return look()

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            monkeypatch.setattr(procfs, "pids", pids)
            await gone(agent, shard)
            assert len(refused) == 5
            assert not alive(pid)

    asyncio.run(story())


def test_weights_that_may_not_be_looked_at_fail_their_shard(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of somebody else's is said; the agent lives."""

    async def holds(*_: object) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/private/w.gguf")

    async def story() -> None:
        monkeypatch.setattr(Here, "holds", holds)
        async with house.agent() as agent:
            shard = house.spec()
            agent.order(assign(shard))
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == "cannot look at /private/w.gguf: Permission denied"
            await gone(agent, shard)

    asyncio.run(story())


def no_thread(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on no thread can be started. Returns those that were asked for."""
    asked: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        asked.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    asyncio.get_running_loop().set_default_executor(Threads())
    return asked


def test_an_agent_without_threads_fails_its_launch_and_lives(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of processes a launch fails in words; once there is room the next one runs."""

    async def story() -> None:
        async with house.agent() as agent:
            with monkeypatch.context() as patch:
                asked = no_thread(patch)
                shard = house.spec()
                await launched(agent, shard)
                assert asked
                said = house.last(shard.key).reason
                assert (
                    said == "cannot start its process: [Errno 11] no thread for it (can't start new thread)"
                )
            await gone(agent, shard)
            await ready(house, agent, another := house.spec("alpha/next"))
            await gone(agent, another)

    asyncio.run(story())


def test_an_end_is_told_without_threads(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine dies while no thread can be started: it is swept, and told, once one can; nobody else dies."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            with monkeypatch.context() as patch:
                asked = no_thread(patch)
                os.kill(pid, signal.SIGKILL)
                await until(lambda: len(asked) > 3, "attempts")
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert "SIGKILL" in house.last(shard.key).reason
            await gone(agent, shard)

    asyncio.run(story())
