"""The node's decisions, as dialogues: what was said, what the node does about it."""

import dataclasses

import pytest

from llmgw.agent import core
from llmgw.fleet.node import Gpu, Holder
from llmgw.fleet.shard import ShardSpec, State
from tests.agent.making import NODE, assign, spec, start, stop

T0 = 1000.0
ALPHA = spec()


class Talk:
    """One node's state, told events one after the other."""

    def __init__(self, limits: core.Limits = core.Limits()) -> None:  # noqa: B008 - frozen
        self.state = core.AgentState(NODE, limits)

    def tell(self, event: core.Event, now: float = T0) -> tuple[core.Command, ...]:
        self.state, commands = core.step(self.state, event, now)
        return commands

    def running(self, of: ShardSpec = ALPHA, now: float = T0) -> "Talk":
        """Up to a launched process."""
        self.tell(core.Commanded(assign(of)), now)
        self.tell(core.Fetched(of.cache_name), now)
        self.tell(core.Commanded(start(of)), now)
        self.tell(core.Launched(of.key, 4711), now)
        return self

    def kept(self, of: ShardSpec = ALPHA) -> core.Kept:
        return self.state.shards[of.key]


def reported(commands: tuple[core.Command, ...]) -> list[tuple[State, str]]:
    return [
        (status.state, status.reason)
        for command in commands
        if isinstance(command, core.Report)
        for status in command.statuses
    ]


def acts(commands: tuple[core.Command, ...]) -> list[core.Command]:
    return [command for command in commands if not isinstance(command, core.Report)]


def test_a_shard_lives_from_assign_to_gone() -> None:
    """Assigned, fetching, held, starting, started, ready, stopping, gone: one step each, each reported."""
    talk = Talk()
    seen: list[State] = []
    for event in (
        core.Commanded(assign(ALPHA)),
        core.Fetching(ALPHA.cache_name),
        core.Fetched(ALPHA.cache_name),
        core.Commanded(start(ALPHA)),
        core.Milestone(ALPHA.key, "started"),
        core.Milestone(ALPHA.key, "ready"),
        core.Commanded(stop(ALPHA)),
        core.Swept(ALPHA.key),
    ):
        seen += [state for state, _ in reported(talk.tell(event))]
    assert seen == ["assigned", "fetching", "held", "starting", "started", "ready", "stopping", "gone"]
    assert talk.state.shards == {}


def test_nothing_is_executed_before_start() -> None:
    """Weights that are here make a shard held, and held executes nothing."""
    talk = Talk()
    assert acts(talk.tell(core.Commanded(assign(ALPHA)))) == [core.Fetch(ALPHA.source, 1000)]
    assert acts(talk.tell(core.Fetched(ALPHA.cache_name))) == []
    assert acts(talk.tell(core.Commanded(start(ALPHA)))) == [core.Launch(ALPHA)]


def test_a_start_that_comes_before_the_weights_has_no_effect() -> None:
    """An early Start is answered with the truth and starts nothing later."""
    talk = Talk()
    talk.tell(core.Commanded(assign(ALPHA)))
    assert reported(talk.tell(core.Commanded(start(ALPHA)))) == [("assigned", "")]
    assert acts(talk.tell(core.Fetched(ALPHA.cache_name))) == []


@pytest.mark.parametrize("command", [assign(ALPHA), start(ALPHA)])
def test_what_comes_twice_is_answered_and_changes_nothing(command: core.Order) -> None:
    """A duplicate of a command that was obeyed does nothing but report."""
    talk = Talk().running()
    before = talk.state
    assert acts(talk.tell(core.Commanded(command))) == []
    assert talk.state == before


def test_a_second_stop_does_not_terminate_again() -> None:
    """Stop is sent again while nothing follows; the process is terminated once."""
    talk = Talk().running()
    assert acts(talk.tell(core.Commanded(stop(ALPHA, grace=3)))) == [core.Terminate(ALPHA.key, 3)]
    again = talk.tell(core.Commanded(stop(ALPHA, grace=3)))
    assert (acts(again), reported(again)) == ([], [("stopping", "it left the catalog")])


@pytest.mark.parametrize("command", [start(ALPHA), stop(ALPHA)])
def test_a_shard_that_is_not_here_is_gone(command: core.Order) -> None:
    """Orders for an unknown shard are answered `gone`, never with silence."""
    assert reported(Talk().tell(core.Commanded(command))) == [("gone", "")]


def test_a_stop_for_another_generation_stops_nothing() -> None:
    """A late Stop that means another generation leaves this one running."""
    talk = Talk().running()
    commands = talk.tell(core.Commanded(stop(ALPHA, generation="older")))
    assert (acts(commands), talk.kept().state) == ([], "starting")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (spec("beta/aaaa", gpus=("GPU-1",), port=20500), "GPU GPU-1 is held by alpha/x7qf rank 0 (starting)"),
        (spec("beta/aaaa", port=20005), "port 20005 is held by alpha/x7qf rank 0 (starting)"),
        (spec("beta/aaaa", port=20500, gpus_per_node=2), "it needs 2 GPUs and names none"),
        (spec("beta/aaaa", nodes=("node-b",), port=20500), "it is meant for node node-b, this is node-a"),
    ],
)
def test_what_is_held_is_refused_with_its_holder(second: ShardSpec, said: str) -> None:
    """The node is the second applier: a placement that collides becomes `failed: refused`."""
    talk = Talk().running(spec(gpus=("GPU-1", "GPU-2")))
    commands = talk.tell(core.Commanded(assign(second)))
    assert (acts(commands), reported(commands)) == ([], [("failed", f"refused: {said}")])


def test_a_refused_shard_holds_nothing() -> None:
    """What was refused blocks neither its GPUs nor its ports, and ends without a sweep."""
    talk = Talk().running(spec(gpus=("GPU-1",)))
    refused = spec("beta/aaaa", gpus=("GPU-1", "GPU-2"), port=20500)
    third = spec("gamma/bbbb", gpus=("GPU-2",), port=20500)
    talk.tell(core.Commanded(assign(refused)))
    assert reported(talk.tell(core.Commanded(assign(third)))) == [("assigned", "")]
    assert reported(talk.tell(core.Commanded(stop(refused))))[0][0] == "gone"
    assert talk.state.failures(T0) == ()


def test_gpus_and_ports_are_free_only_after_the_sweep() -> None:
    """A stopping shard holds what it had until nobody of it is left."""
    talk = Talk().running(spec(gpus=("GPU-1",)))
    heir = spec("beta/aaaa", gpus=("GPU-1",))
    talk.tell(core.Commanded(stop(ALPHA)))
    assert reported(talk.tell(core.Commanded(assign(heir))))[0][0] == "failed"
    talk.tell(core.Commanded(stop(heir)))
    assert reported(talk.tell(core.Swept(ALPHA.key))) == [("gone", "it left the catalog")]
    assert reported(talk.tell(core.Commanded(assign(heir)))) == [("assigned", "")]


@pytest.mark.parametrize("reached", [(), ("started",), ("started", "ready"), ("ready",)])
def test_an_exit_decides_at_once(reached: tuple[str, ...]) -> None:
    """Whatever the shard was waiting for, its exit fails it, and its residue is swept."""
    talk = Talk().running()
    for milestone in reached:
        talk.tell(core.Milestone(ALPHA.key, milestone))  # type: ignore[arg-type]
    commands = talk.tell(core.Exited(ALPHA.key, "exit 1: out of memory"))
    assert acts(commands) == [core.Sweep(ALPHA.key)]
    assert reported(commands) == [("failed", "exit 1: out of memory")]
    assert talk.tell(core.Milestone(ALPHA.key, "ready")) == ()


def test_a_failed_shard_stays_until_it_is_stopped() -> None:
    """A sweep empties a failed shard; only Stop removes it."""
    talk = Talk().running()
    talk.tell(core.Exited(ALPHA.key, "exit 1"))
    assert talk.tell(core.Swept(ALPHA.key)) == ()
    assert talk.kept().state == "failed"
    commands = talk.tell(core.Commanded(stop(ALPHA)))
    assert (acts(commands), reported(commands)) == ([core.Forget(ALPHA.key)], [("gone", "exit 1")])


def test_stop_during_the_sweep_of_a_failed_shard_waits_for_it() -> None:
    """Stop terminates no second time what is being swept; `gone` still needs the proof."""
    talk = Talk().running()
    talk.tell(core.Exited(ALPHA.key, "exit 1"))
    commands = talk.tell(core.Commanded(stop(ALPHA)))
    assert (acts(commands), reported(commands)) == ([], [("stopping", "exit 1")])
    assert acts(talk.tell(core.Swept(ALPHA.key))) == [core.Forget(ALPHA.key)]


def test_an_exit_while_stopping_is_what_was_asked_for() -> None:
    """The exit of a shard that is being stopped is no failure."""
    talk = Talk().running()
    talk.tell(core.Commanded(stop(ALPHA)))
    assert talk.tell(core.Exited(ALPHA.key, "signal 15")) == ()
    assert talk.state.failures(T0) == ()


def test_fetching_is_never_charged_to_the_start() -> None:
    """The deadline counts from exec: a day of downloading moves it by nothing."""
    talk = Talk()
    talk.tell(core.Commanded(assign(ALPHA)))
    assert core.wake_at(talk.state) is None
    day = T0 + 86400
    talk.tell(core.Fetched(ALPHA.cache_name), day)
    talk.tell(core.Commanded(start(ALPHA)), day + 5)
    assert core.wake_at(talk.state) == day + 5 + 1200


def test_a_start_that_takes_too_long_has_failed() -> None:
    """At its deadline a shard that is not ready fails with the limit named; `started` moves nothing."""
    talk = Talk().running()
    talk.tell(core.Milestone(ALPHA.key, "started"), T0 + 1000)
    assert talk.tell(core.Tick(), T0 + 1199) == ()
    commands = talk.tell(core.Tick(), T0 + 1200)
    assert reported(commands) == [
        ("failed", "not ready 20m after its start (start_deadline); it was started")
    ]
    assert acts(commands) == [core.Sweep(ALPHA.key)]
    assert core.wake_at(talk.state) is None


def test_a_ready_shard_has_no_deadline() -> None:
    """Nothing is due once it is ready."""
    talk = Talk().running()
    talk.tell(core.Milestone(ALPHA.key, "ready"))
    assert core.wake_at(talk.state) is None
    assert talk.tell(core.Tick(), T0 + 10**6) == ()


def test_one_fetch_serves_all_shards_that_wait_for_it() -> None:
    """Two shards of one source make one Fetch; the last that leaves releases it."""
    talk, second = Talk(), spec("alpha/yyyy", port=20100)
    talk.tell(core.Commanded(assign(ALPHA)))
    assert acts(talk.tell(core.Commanded(assign(second)))) == []
    first_gone = acts(talk.tell(core.Commanded(stop(ALPHA))))
    assert first_gone == [core.Forget(ALPHA.key)]
    assert acts(talk.tell(core.Commanded(stop(second)))) == [
        core.Release(second.cache_name),
        core.Forget(second.key),
    ]


def test_a_fetch_that_fails_fails_every_shard_that_waits() -> None:
    """The reason of the fetch is the reason of the shards, and nothing needs a sweep."""
    talk, second = Talk(), spec("alpha/yyyy", port=20100)
    talk.tell(core.Commanded(assign(ALPHA)))
    talk.tell(core.Commanded(assign(second)))
    commands = talk.tell(core.FetchFailed(ALPHA.cache_name, "cannot fetch: 404"))
    assert (acts(commands), reported(commands)) == ([], [("failed", "cannot fetch: 404")] * 2)


def test_failures_are_remembered_by_model_and_generation() -> None:
    """They are counted across replicas, with their age, so that a new control plane can ask."""
    talk = Talk()
    for n, replica in enumerate(("alpha/aaaa", "alpha/bbbb")):
        talk.running(spec(replica, port=20000 + 10 * n), T0 + n)
        talk.tell(core.Exited((replica, 0), "exit 1"), T0 + n)
    (failure,) = talk.state.failures(T0 + 11)
    assert (failure.model, failure.generation, failure.count) == ("alpha", "g1", 2)
    assert (failure.age, failure.reason) == (10.0, "exit 1")


def test_minutes_of_ready_clear_the_failures() -> None:
    """A (model, generation) that stayed ready long enough starts again at the base delay."""
    talk, second = Talk(core.Limits(reset_after=60)).running(), spec("alpha/yyyy", port=20100)
    talk.tell(core.Exited(ALPHA.key, "exit 1"))
    talk.running(second)
    talk.tell(core.Milestone(second.key, "ready"), T0 + 10)
    assert core.wake_at(talk.state) == T0 + 70
    talk.tell(core.Tick(), T0 + 69)
    assert talk.state.failures(T0) != ()
    talk.tell(core.Tick(), T0 + 70)
    assert talk.state.failures(T0) == ()
    assert core.wake_at(talk.state) is None


def test_the_tables_are_bounded() -> None:
    """A node keeps so many shards and so many failures, drops the oldest failure, refuses the next shard."""
    talk = Talk(core.Limits(shards=3, failures=2))
    for n in range(3):
        shard = spec(f"m{n}/aaaa", port=20000 + 10 * n)
        talk.running(shard, T0 + n)
        talk.tell(core.Exited(shard.key, "exit 1"), T0 + n)
    assert [failure.model for failure in talk.state.failures(T0)] == ["m1", "m2"]
    commands = talk.tell(core.Commanded(assign(spec("m9/aaaa", port=20900))))
    assert reported(commands) == [("failed", "refused: this node already keeps 3 shards")]
    assert len(talk.state.shards) == 3


def test_an_adopted_shard_keeps_the_deadline_of_its_exec() -> None:
    """A restart of the agent gives a slow start no second chance."""
    talk = Talk()
    commands = talk.tell(core.Adopted(ALPHA, 4711, "starting", age=200.0, stands=200.0))
    assert reported(commands) == [("starting", "")]
    assert core.wake_at(talk.state) == T0 + 1000
    assert (talk.kept().adopted, talk.kept().status(T0).age) == (True, 200.0)


def test_an_adopted_shard_is_ready_since_it_became_so() -> None:
    """A load of many minutes is no proof that it serves well: what forgives failures counts from Ready."""
    talk = Talk()
    talk.tell(core.Adopted(ALPHA, 4711, "ready", age=1100.0, stands=2.0))
    assert talk.kept().status(T0).age == 2.0
    assert core.wake_at(talk.state) is None


def test_an_adopted_shard_stops_like_any_other() -> None:
    """It is terminated, swept and forgotten."""
    talk = Talk()
    talk.tell(core.Adopted(ALPHA, 4711, "ready", age=200.0, stands=20.0))
    assert acts(talk.tell(core.Commanded(stop(ALPHA)))) == [core.Terminate(ALPHA.key, 20.0)]
    assert acts(talk.tell(core.Swept(ALPHA.key))) == [core.Forget(ALPHA.key)]


def test_a_sweep_that_lingers_says_who_is_left() -> None:
    """A process that will not die is named while the shard holds what it had."""
    talk = Talk().running()
    talk.tell(core.Commanded(stop(ALPHA)))
    told = core.Lingers(ALPHA.key, "cannot end pid 12 (state D)")
    assert reported(talk.tell(told)) == [("stopping", "cannot end pid 12 (state D)")]
    assert talk.tell(told) == ()


def test_idle_is_told_when_it_changes() -> None:
    """The engine's counters change no state; a drain may wait for them, so a change is told, once."""
    talk = Talk().running()
    assert talk.state.idle() == ()
    assert reported(talk.tell(core.Idle(ALPHA.key, True))) == [("starting", "")]
    assert talk.tell(core.Idle(ALPHA.key, True)) == ()
    assert talk.state.idle() == ((ALPHA.key, True),)
    talk.tell(core.Commanded(stop(ALPHA)))
    assert talk.state.idle() == ()


def test_a_step_mutates_nothing() -> None:
    """The state before a step is still what it was."""
    talk = Talk()
    before = talk.state
    talk.running()
    assert before == core.AgentState(NODE)
    assert dataclasses.is_dataclass(before)


def test_what_nothing_describes_ends_once_the_control_plane_was_heard() -> None:
    """Not before: it may still describe it. And once, however often it speaks."""
    talk = Talk()
    first, second, third = core.Stray("c1", 7, ("GPU-1",)), core.Stray("c2"), core.Stray("c3")
    assert talk.tell(core.Undescribed((first, second), left=(third,))) == ()
    assert list(talk.state.orphans) == [first, second]
    assert talk.tell(core.Heard()) == (core.EndOrphan("c1", ("GPU-1",)), core.EndOrphan("c2"))
    assert talk.tell(core.Heard()) == ()
    assert not talk.state.orphans
    assert talk.state.ending == (first, second)
    assert talk.tell(core.OrphanEnded("c1")) == (core.Recount(),)
    assert talk.state.undescribed() == {"c2", "c3"}
    assert talk.tell(core.OrphanEnded("c3")) == (core.Recount(),)
    assert talk.state.undescribed() == {"c2"}


CARDS = tuple(Gpu(uuid, "H100") for uuid in ("GPU-1", "GPU-2"))
BETA = spec("beta/aaaa", gpus=("GPU-1",), port=20500)


@pytest.mark.parametrize("heard", [False, True])
def test_a_card_of_what_nothing_describes_is_withdrawn_until_that_has_ended(heard: bool) -> None:
    """Before it is charged there as well; a shard that is meant for it all the same is refused."""
    talk = Talk()
    talk.tell(core.Undescribed((core.Stray("c1", 7, ("GPU-1",)),)))
    if heard:
        talk.tell(core.Heard())
    said = "pid 7 holds it, an engine of ours that no record describes"
    first, second = talk.state.inventory(CARDS) or ()
    assert (first.healthy, first.said, second) == (False, said, CARDS[1])
    assert reported(talk.tell(core.Commanded(assign(BETA)))) == [
        ("failed", f"refused: GPU GPU-1 cannot be used: {said}")
    ]
    talk.tell(core.Heard())
    talk.tell(core.OrphanEnded("c1"))
    assert talk.state.inventory(CARDS) == CARDS
    assert talk.state.inventory(None) is None


GIB = 1 << 30
SLEEPER = Holder(4177, 20 * GIB, "python3")
H100 = Gpu("GPU-1", "H100", 80 * GIB)


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        ((), "there is no GPU GPU-1 here"),
        ((CARDS[1],), "there is no GPU GPU-1 here"),
        (
            (dataclasses.replace(H100, healthy=False, said="fell off the bus"),),
            "GPU GPU-1 cannot be used: fell off the bus",
        ),
        ((dataclasses.replace(H100, healthy=False),), "GPU GPU-1 cannot be used: it is not healthy"),
        (
            (dataclasses.replace(H100, foreign=20 * GIB, holders=(SLEEPER,)),),
            "GPU GPU-1 has 60 GiB free, 72 GiB needed: 20 GiB held by pid 4177 (python3), not llmgw's",
        ),
    ],
)
def test_a_card_that_cannot_take_a_shard_refuses_it(cards: tuple[Gpu, ...], said: str) -> None:
    """The node has the last word: not here, withdrawn, or another's memory on it. Before its engine would find out."""
    talk = Talk()
    talk.tell(core.Seen(cards, None))
    assert reported(talk.tell(core.Commanded(assign(BETA)))) == [("failed", f"refused: {said}")]
    assert (talk.kept(BETA).refused, acts(talk.tell(core.Commanded(start(BETA))))) == (True, [])


@pytest.mark.parametrize(
    "cards",
    [
        None,
        CARDS,  # whose memory nobody told
        (H100,),
        (dataclasses.replace(H100, foreign=8 * GIB),),  # a tenth is what the profile leaves
    ],
)
def test_what_is_not_known_of_a_card_refuses_nothing(cards: tuple[Gpu, ...] | None) -> None:
    """No NVML, no memory told, or room enough beside others."""
    talk = Talk()
    talk.tell(core.Seen(cards, None))
    assert reported(talk.tell(core.Commanded(assign(BETA)))) == [("assigned", "")]


def test_who_came_while_the_weights_did_is_seen_at_the_start() -> None:
    """Its cards were free when it was assigned; the start is refused, and the shard fails with the reason."""
    talk = Talk()
    talk.tell(core.Seen((H100,), None))
    talk.tell(core.Commanded(assign(BETA)))
    talk.tell(core.Fetched(BETA.cache_name))
    talk.tell(core.Seen((dataclasses.replace(H100, foreign=20 * GIB, holders=(SLEEPER,)),), None))
    commands = talk.tell(core.Commanded(start(BETA)))
    ((state, reason),) = reported(commands)
    assert (state, acts(commands)) == ("failed", [])
    assert reason.startswith("refused: GPU GPU-1 has 60 GiB free, 72 GiB needed")
    assert reported(talk.tell(core.Commanded(stop(BETA))))[-1][0] == "gone"


def test_memory_beyond_what_the_machine_has_is_refused() -> None:
    """What its other shards were promised is theirs; a shard that asks for none, or a machine that tells none, refuses nothing."""
    asks = [spec(f"m{n}/aaaa", port=20100 + 10 * n, cpu_memory=40 * GIB) for n in range(3)]
    talk = Talk()
    talk.tell(core.Seen(None, 64 * GIB))
    assert reported(talk.tell(core.Commanded(assign(asks[0])))) == [("assigned", "")]
    assert reported(talk.tell(core.Commanded(assign(asks[1])))) == [
        ("failed", "refused: 24 GiB of memory not booked, 40 GiB needed")
    ]
    assert reported(talk.tell(core.Commanded(assign(ALPHA)))) == [("assigned", "")]
    talk.tell(core.Seen(None, None))
    assert reported(talk.tell(core.Commanded(assign(asks[2])))) == [("assigned", "")]


def test_a_launch_whose_cards_cannot_be_read_may_hold_any_but_those_of_our_shards() -> None:
    """Who holds the card of a shard here is known; a newer release's engine keeps the others for its life."""
    talk = Talk()
    talk.tell(core.Adopted(BETA, 8, "ready", 5.0, 1.0))
    talk.tell(core.Undescribed((), left=(core.Stray("c3", 9),)))
    first, second = talk.state.inventory(CARDS) or ()
    assert (first, second.healthy) == (CARDS[0], False)
    assert second.said == "pid 9 may hold it, an engine of ours that no record describes"


def test_what_ended_after_it_served_is_told_apart_from_a_failed_start() -> None:
    """A control plane that comes later has seen nothing of it: the node says for how long it was ready."""
    talk = Talk().running()
    talk.tell(core.Milestone(ALPHA.key, "started"))
    talk.tell(core.Milestone(ALPHA.key, "ready"), T0 + 20)
    talk.tell(core.Exited(ALPHA.key, "killed by SIGKILL"), T0 + 200)
    ((_, status),) = talk.state.statuses(T0 + 230)
    assert (status.state, status.served, status.age) == ("failed", 180.0, 30.0)
    (failure,) = talk.state.failures(T0 + 230)
    assert (failure.count, failure.served) == (1, 180.0)
    started = Talk().running()
    started.tell(core.Exited(ALPHA.key, "exit 1"), T0 + 200)
    assert [failed.served for failed in started.state.failed.values()] == [0.0]
