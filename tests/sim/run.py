"""`run(seed)`: one world from its first event to its rest, or to the first invariant that breaks."""

import collections
import contextlib
import dataclasses
import gc
import itertools
import logging
from collections.abc import Iterator

from llmgw.control import journal
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import Chance
from llmgw.planning import settle
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.reconcile import Pass
from llmgw.wire import bounds, messages
from tests.sim.faults import KINDS
from tests.sim.kinds import Fault
from tests.sim.verdict import Violation
from tests.sim.world import CALM, DENSE, World

LINES = 40
"""What a journal keeps, few enough to be met."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What came of one seed. `digest` is of the whole trace; `events` counts all that happened,
    `told` the lines of the trace; `took` counts faults that had an effect,
    `edges` what `sim.edges` names."""

    seed: int
    faults: tuple[Fault, ...]
    violation: Violation | None
    events: int
    told: int
    seconds: float
    took: collections.Counter[str]
    orders: int
    edges: collections.Counter[str]
    digest: str
    trace: tuple[str, ...]


def plan_with(seed: int, kinds: str, events: int | None) -> tuple[Fault, ...]:
    """The faults of `seed`, and one of each of these kinds among them, as long as they get."""
    plan = World(seed, None, False, CALM if events is None else DENSE).plan
    early = plan[len(plan) // 4].at if plan else 60.0
    more = [Fault(early, kind, seed, KINDS[kind].longest, size=1.0) for kind in kinds.split()]
    return tuple(sorted((*plan, *more), key=lambda fault: fault.at))


def run_meeting(seed: int, kinds: str, events: int | None) -> Run:
    """Live through one seed, with one fault of each of these kinds more; empty = as it is."""
    return run(seed, plan=plan_with(seed, kinds, events) if kinds else None, events=events)


def run(
    seed: int,
    *,
    plan: tuple[Fault, ...] | None = None,
    events: int | None = None,
    trace: bool = False,
    forgetful: bool = False,
) -> Run:
    """Live through one seed, or through another list of faults in the world of that seed.

    A `forgetful` control plane remembers nothing from pass to pass; it must decide the same.
    """
    violation = None
    with _short_journal(), _sampled():
        world = World(seed, plan, trace, CALM if events is None else DENSE)
        try:
            with _watched(world, forgetful):
                world.live(events)
        except Violation as found:
            violation = found
    return Run(
        seed=seed,
        faults=world.plan,
        violation=violation,
        events=world.clock.happened,
        told=world.told,
        seconds=world.clock.now,
        took=world.took,
        orders=world.oracle.orders,
        edges=world.edges.count,
        digest=world.digest,
        trace=tuple(world.trace),
    )


@contextlib.contextmanager
def _short_journal() -> Iterator[None]:
    kept, journal.KEPT = journal.KEPT, LINES
    try:
        yield
    finally:
        journal.KEPT = kept


@contextlib.contextmanager
def _sampled() -> Iterator[None]:
    """Of what peers say, every eighth message is looked at for its bounds: tests/wire look at all of them."""
    flaw, count = bounds.flaw, itertools.count()

    def sample(message: messages.Up) -> str:
        return flaw(message) if next(count) % 8 == 0 else ""

    bounds.flaw = sample
    try:
        yield
    finally:
        bounds.flaw = flaw


@contextlib.contextmanager
def _watched(world: World, forgetful: bool) -> Iterator[None]:
    """Every pass inside `settle` is seen by the oracle before the next one is made."""
    decide = settle.reconcile
    thresholds = gc.get_threshold()

    def watched(
        desired: Desired,
        fleet: Fleet,
        ledger: Ledger,
        now: float,
        chance: Chance,
        timers: Timers,
        memory: Board,
    ) -> Pass:
        if forgetful:
            memory._forget()
        result = decide(desired, fleet, ledger, now, chance, timers, memory)
        if not world.control.rehearses:
            world.oracle.passed(result, ledger, fleet, desired, now)
            world.edges.passed(memory, desired.marks)
        return result

    settle.reconcile = watched
    logging.disable(logging.ERROR)  # alarms are expected by the thousand
    gc.set_threshold(200_000, 50, 50)  # worlds are small, and most of what they make is no cycle
    try:
        yield
    finally:
        settle.reconcile = decide
        logging.disable(logging.NOTSET)
        gc.set_threshold(*thresholds)
