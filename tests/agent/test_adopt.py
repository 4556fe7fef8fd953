"""A starting agent and what it finds: decided from two lists, and then for real."""

import asyncio
import dataclasses
import errno
import itertools
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from llmgw.agent import core, marks, procfs
from llmgw.agent.adopt import decide
from llmgw.agent.marks import Identity, Marked
from llmgw.agent.records import Found, Record
from llmgw.errors import Failed
from tests.agent.house import House, alive, gone, launched, ready, until
from tests.agent.making import spec
from tests.agent.test_records import edit, file_of

ALPHA = Record(spec(), Identity("cookie-a", "/g/cookie-a", "boot", 100, 5000), state="running")
LEADER = Marked(100, 5000, 100, "alpha/x7qf:0", "cookie-a", "/g/cookie-a")
WORKER = Marked(101, 5001, 100, "alpha/x7qf:0", "cookie-a", "/g/cookie-a")


def test_a_record_and_its_leader_are_adopted() -> None:
    """Same boot, pid, ticks and cookie: the shard goes on."""
    assert decide(Found((ALPHA,)), [WORKER, LEADER], "boot").adopt == (ALPHA,)


@pytest.mark.parametrize(
    "stranger",
    [
        dataclasses.replace(LEADER, cookie="cookie-b"),
        dataclasses.replace(LEADER, ticks=5001, cookie="cookie-b"),
    ],
)
def test_a_pid_that_belongs_to_somebody_else_by_now_is_not_adopted(stranger: Marked) -> None:
    """The recorded pid under another mark is forgotten, not taken over."""
    decision = decide(Found((ALPHA,)), [stranger], "boot")
    assert (decision.adopt, decision.forget) == ((), (ALPHA,))


def test_after_a_reboot_no_pid_means_anything() -> None:
    """Pid and ticks of another boot are another process."""
    assert decide(Found((ALPHA,)), [], "another boot").forget == (ALPHA,)


def test_workers_without_their_leader_are_swept() -> None:
    """The leader died while nobody watched: what is left of the shard ends."""
    decision = decide(Found((ALPHA,)), [WORKER], "boot")
    assert (decision.sweep, decision.adopt, decision.forget) == ((ALPHA,), (), ())


def test_a_worker_with_a_session_of_its_own_is_not_taken_for_the_leader() -> None:
    """Both made a session and were born in one tick; where the leader is dead, the rest is swept."""
    intent = dataclasses.replace(ALPHA, state="launching", identity=Identity("cookie-a", "/g/cookie-a"))
    leader = dataclasses.replace(LEADER, leader=100)
    worker = Marked(101, 5000, 101, "alpha/x7qf:0", "cookie-a", "/g/cookie-a", leader=100)
    (adopted,) = decide(Found((intent,)), [worker, leader], "boot").adopt
    assert adopted.identity.pid == 100
    decision = decide(Found((intent,)), [worker], "boot")
    assert (decision.sweep, decision.adopt) == ((intent,), ())


def test_an_agent_that_died_between_fork_and_record_finds_its_engine() -> None:
    """An intent and a live process with its cookie are one shard; who made the session is its leader."""
    intent = dataclasses.replace(ALPHA, state="launching", identity=Identity("cookie-a", "/g/cookie-a"))
    (adopted,) = decide(Found((intent,)), [WORKER, LEADER], "boot").adopt
    assert (adopted.state, adopted.identity) == ("running", ALPHA.identity)


def test_an_intent_that_was_never_forked_is_forgotten() -> None:
    """Nothing carries its cookie."""
    intent = dataclasses.replace(ALPHA, state="launching", identity=Identity("cookie-a"))
    assert decide(Found((intent,)), [], "boot").forget == (intent,)


def test_marked_and_described_by_nothing_is_an_orphan() -> None:
    """One orphan a launch, whatever the size of its tree."""
    assert decide(Found(), [WORKER, LEADER], "boot").orphans == (ALPHA.identity,)


@pytest.mark.parametrize("by", ["alpha/x7qf:0", "cookie-a"])
def test_what_a_newer_release_describes_is_no_orphan(by: str) -> None:
    """Nothing is ended because of a version."""
    decision = decide(Found(foreign=frozenset({by})), [WORKER, LEADER], "boot")
    assert (decision.orphans, decision.left) == ((), (ALPHA.identity,))


@pytest.mark.parametrize(
    ("leader", "worker", "cards"),
    [
        (("GPU-1", "GPU-2"), ("GPU-1",), ("GPU-1", "GPU-2")),
        (None, ("GPU-2",), ("GPU-2",)),
        ((), (), ()),
        ((), None, None),
        (None, None, None),
    ],
)
def test_the_cards_of_an_orphan_are_what_its_tree_was_given(
    leader: tuple[str, ...] | None, worker: tuple[str, ...] | None, cards: tuple[str, ...] | None
) -> None:
    """Where nobody names a card and somebody cannot be read, it may hold any."""
    tree = [dataclasses.replace(LEADER, cards=leader), dataclasses.replace(WORKER, cards=worker)]
    assert decide(Found(), tree, "boot").undescribed().orphans == (core.Stray("cookie-a", 100, cards),)


BETA = dataclasses.replace(ALPHA, spec=spec("beta/aaaa"))
"""Another shard's record with the cookie of `ALPHA`."""
STALE = dataclasses.replace(ALPHA, identity=dataclasses.replace(ALPHA.identity, cookie="cookie-b"))
"""An earlier launch of `ALPHA`."""


@pytest.mark.parametrize("found", list(itertools.permutations((ALPHA, BETA, STALE, ALPHA), 3)))
@pytest.mark.parametrize("tree", [[LEADER, WORKER], [WORKER]])
def test_whatever_lies_there_nothing_that_lives_is_forgotten(
    found: tuple[Record, ...], tree: list[Marked]
) -> None:
    """One launch is taken over once, by its own shard's record, and the file of who was taken over stays."""
    decision = decide(Found(found), tree, "boot")
    taken = decision.adopt or decision.sweep
    assert len(decision.adopt + decision.sweep) == 1
    assert taken == ((ALPHA,) if ALPHA in found else (BETA,))
    assert taken[0].spec.key not in {record.spec.key for record in decision.forget}
    assert decision.orphans == ()


def test_a_recorded_leader_is_adopted_whatever_its_environment_says() -> None:
    """Nothing carries its cookie; it is the very process that was launched, and is taken over once."""
    decision = decide(Found((ALPHA, BETA)), [], "boot", {ALPHA.identity: True})
    assert (decision.adopt, decision.forget) == ((ALPHA,), (BETA,))


def test_what_is_left_of_a_session_is_swept() -> None:
    """The leader is a zombie, which keeps its session's number from meaning somebody else."""
    decision = decide(Found((ALPHA,)), [], "boot", {ALPHA.identity: False})
    assert (decision.sweep, decision.forget) == ((ALPHA,), ())


# --- for real --------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["cgroup", "session"])
def house(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[House]:
    """A node, with cgroups and without."""
    house = House(tmp_path, with_cgroups=request.param)
    if request.param and house.cgroups is None:
        pytest.skip("cgroup v2 is not writable here")
    yield house
    house.clean()


def test_a_restarted_agent_finds_the_same_pid(house: House) -> None:
    """kill -9 of an agent, as seen by its engine: nothing. As seen by the next agent: ready, at once."""

    async def story() -> None:
        shard = house.spec(does="workers")
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        assert alive(pid)
        house.reports.clear()
        async with house.agent() as second:
            status = house.last(shard.key)
            assert (status.pid, status.state, status.adopted) == (pid, "ready", True)
            assert len(house.marked()) == 3
            await gone(second, shard)
            assert house.marked() == []

    asyncio.run(story())


def test_a_restarted_agent_finds_an_engine_without_our_environment(house: House) -> None:
    """Its wrapper ended in `exec env -i`: the record names its leader, whose session ends with it."""

    async def story() -> None:
        shard = house.spec(does="cleared twins")
        async with house.agent() as first:
            pid = await ready(house, first, shard)
            tree = first.kin()
            assert len(tree) == 3
        async with house.agent() as second:
            second.heard()
            status = house.last(shard.key)
            assert (status.pid, status.state, status.adopted) == (pid, "ready", True)
            assert second.kin() == tree
            await gone(second, shard)
            assert [pid for pid in tree if alive(pid)] == []

    asyncio.run(story())


def test_the_session_of_an_adopted_leader_ends_after_it(house: House) -> None:
    """It is no child of its agent: once init has reaped it, only who was seen in its session vouches for the number."""

    async def story() -> None:
        shard = house.spec(does="cleared twins")
        async with house.agent() as first:
            pid = await ready(house, first, shard)
            tree = first.kin()
        async with house.agent() as second:
            os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)
            await until(lambda: second.state.shards[shard.key].swept, "swept")
            assert [pid for pid in tree if alive(pid)] == []
            await gone(second, shard)

    asyncio.run(story())


def test_a_state_of_a_newer_release_is_adopted_and_kept(house: House) -> None:
    """Rolled back with an engine running: same pid, and the newer release finds its own words again."""

    async def story() -> None:
        shard = house.spec()
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        path = file_of(house.records.directory)
        edit(path, lambda body: body.update(schema=99, shape={"new": [1]}), version=99)
        async with house.agent() as second:
            assert house.problems == ()
            status = house.last(shard.key)
            assert (status.pid, status.state, status.adopted) == (pid, "ready", True)
            whole = json.loads(path.read_text())
            assert (whole["v"], whole["body"]["schema"], whole["body"]["shape"]) == (99, 99, {"new": [1]})
            await gone(second, shard)

    asyncio.run(story())


def test_an_adopted_start_goes_on_to_ready(house: House) -> None:
    """What was starting when the agent died becomes ready under the next one, on the same deadline."""

    async def story() -> None:
        shard = house.spec(does="unwell", start_deadline=600.0)
        async with house.agent() as first:
            await launched(first, shard)
        async with house.agent() as second:
            kept = second.state.shards[shard.key]
            assert kept.adopted
            assert kept.deadline is not None
            await until(lambda: "503" in second.state.shards[shard.key].reason, "health was asked")
            await gone(second, shard)

    asyncio.run(story())


def test_an_adopted_leader_that_dies_is_noticed(house: House) -> None:
    """It is nobody's child any more: its end is seen, its exit status is said to be unknown."""

    async def story() -> None:
        shard = house.spec(does="workers")
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        async with house.agent() as second:
            os.kill(pid, signal.SIGKILL)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert (
                "killed by SIGKILL" in house.last(shard.key).reason
                or "unknown" in house.last(shard.key).reason
            )
            await until(lambda: house.marked() == [], "swept")
            await gone(second, shard)

    asyncio.run(story())


def test_a_leader_that_died_while_nobody_watched(house: House) -> None:
    """Its workers are found by their mark, swept, and the shard is reported failed until it is stopped."""

    async def story() -> None:
        shard = house.spec(does="workers")
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not alive(pid), "the leader's death")
        async with house.agent() as second:
            assert house.last(shard.key).reason == "its leader died while no agent was watching"
            await until(lambda: house.marked() == [], "swept")
            await gone(second, shard)

    asyncio.run(story())


def test_orphans_end_only_once_the_control_plane_has_been_heard(house: House) -> None:
    """Marked and undescribed: left alone until somebody answers, then ended, tree and all. Its card waits for it."""

    async def story() -> None:
        shard = house.spec(does="workers", gpus=("GPU-aaaa",), gpus_per_node=1)
        async with house.agent() as first:
            await ready(house, first, shard)
        for record in (house.root / "shards").glob("*.json"):
            record.unlink()
        async with house.agent() as second:
            assert second.state.shards == {}
            assert second.state.strayed("GPU-aaaa")
            assert not second.state.strayed("GPU-bbbb")
            await asyncio.sleep(0.2)  # silence is the point: nothing may happen in it
            assert len(house.marked()) == 3
            second.heard()
            await until(lambda: house.recounts, "the orphans' end is told")
            assert (house.marked(), second.state.strayed("GPU-aaaa")) == ([], "")

    asyncio.run(story())


def test_a_newer_release_s_engine_keeps_its_card_until_it_ends_by_itself(house: House) -> None:
    """Nobody ends it and nobody watches it: that it has ended is seen when the node is looked at."""

    async def story() -> None:
        shard = house.spec(gpus=("GPU-aaaa",), gpus_per_node=1)
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        edit(file_of(house.root / "shards"), lambda body: body.update(spec="somewhere else"), version=2)
        async with house.agent() as second:
            second.heard()
            await second.look()
            assert (alive(pid), second.state.strayed("GPU-bbbb")) == (True, "")
            assert second.state.strayed("GPU-aaaa").startswith(f"pid {pid} holds it")
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not alive(pid), "its end")
            await second.look()
            assert (second.state.strayed("GPU-aaaa"), len(house.recounts)) == ("", 1)

    asyncio.run(story())


def test_a_launch_that_died_before_its_record_leaves_no_group(house: House) -> None:
    """An agent dies between the group and the intent: the next one removes the empty group, and no other."""
    if house.cgroups is None:
        return

    async def story() -> None:
        assert house.cgroups is not None
        shard = house.spec()
        async with house.agent() as first:
            await ready(house, first, shard)
        (record,) = house.records.read().records
        empty = house.cgroups.directory(house.cgroups.make("never-recorded"))
        assert empty.is_dir()
        async with house.agent() as second:
            assert not empty.exists()
            assert house.cgroups.directory(record.identity.cgroup).is_dir()
            await gone(second, shard)

    asyncio.run(story())


def test_a_copy_of_a_record_costs_no_engine(house: House) -> None:
    """Somebody copied a ready engine's record and took the copy away again: its engine serves on."""

    async def story() -> None:
        shard = house.spec()
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        real = file_of(house.root / "shards")
        copy = real.with_name("alpha%2Fx7qf.0 (copy).json")
        copy.write_bytes(real.read_bytes())
        async with house.agent() as second:
            assert second.state.shards[shard.key].pid == pid
            assert "set record alpha%2Fx7qf.0 (copy).json aside" in house.problems[0]
        copy.unlink(missing_ok=True)
        async with house.agent() as third:
            third.heard()
            assert (third.state.shards[shard.key].pid, third.state.undescribed()) == (pid, frozenset())
            await gone(third, shard)

    asyncio.run(story())


def test_a_torn_record_costs_one_shard(house: House) -> None:
    """Of three shards one record is empty: two are adopted, the third is an orphan and is reported."""

    async def story() -> None:
        shards = [house.spec(f"alpha/r{n}") for n in range(3)]
        async with house.agent() as first:
            pids = [await ready(house, first, shard) for shard in shards]
        (house.root / "shards" / "alpha%2Fr1.0.json").write_bytes(b"")
        async with house.agent() as second:
            assert set(second.state.shards) == {shards[0].key, shards[2].key}
            assert "set record alpha%2Fr1.0.json aside" in house.problems[0]
            second.heard()
            await until(lambda: not alive(pids[1]), "the orphan's end")
            assert alive(pids[0])
            assert alive(pids[2])

    asyncio.run(story())


def test_a_stranger_under_the_recorded_pid_is_never_signalled(house: House) -> None:
    """The record names a pid that is now somebody else's: it lives on, the record goes."""

    async def story() -> None:
        shard = house.spec()
        async with house.agent() as first:
            await ready(house, first, shard)
        house.clean()
        stranger = sleeper()
        try:
            (record,) = house.records.read().records
            stat = procfs.stat(stranger.pid)
            assert stat is not None
            # In the same tick, where the kernel tells processes apart that have that in common.
            ticks = stat.ticks if record.identity.inode else stat.ticks - 1
            theirs = dataclasses.replace(record.identity, pid=stranger.pid, ticks=ticks)
            house.records.write(dataclasses.replace(record, identity=theirs))
            # By pid, ticks and session it looks like ours; its inode says that it is not.
            assert stat.session == stat.pid
            assert marks.members(theirs) == ()
            async with house.agent() as second:
                second.heard()
                assert second.state.shards == {}
                assert house.records.read().records == ()
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()

    asyncio.run(story())


def sleeper() -> "subprocess.Popen[bytes]":
    """A process that is nothing to us, leader of its own session."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


def test_a_second_record_that_failed_loses_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills between fork and record: the engine runs on, and the next agent finds it by its cookie."""

    async def story() -> None:
        shard = house.spec()
        write = house.records.write

        def only_intents(record: Record) -> None:
            if record.state == "running":
                raise OSError(28, "No space left on device")
            write(record)

        monkeypatch.setattr(house.records, "write", only_intents)
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        assert [record.state for record in house.records.read().records] == ["launching"]
        monkeypatch.setattr(house.records, "write", write)
        async with house.agent() as second:
            assert second.state.shards[shard.key].pid == pid
            assert [record.identity.pid for record in house.records.read().records] == [pid]
            await gone(second, shard)

    asyncio.run(story())


def test_what_cannot_be_held_is_not_gone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without a descriptor left says so and does not start: its engine was taken for dead, and ended."""

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def story() -> None:
        shard = house.spec()
        async with house.agent() as first:
            pid = await ready(house, first, shard)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pidfd_open", refuse)
            with pytest.raises(Failed, match=f"cannot hold pid {pid}: Too many open files"):
                await house.agent().__aenter__()
        async with house.agent() as third:
            assert third.state.shards[shard.key].pid == pid
            await gone(third, shard)

    asyncio.run(story())
