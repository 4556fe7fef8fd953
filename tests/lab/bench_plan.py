"""What deciding costs at scale, on one core: `python -m tests.lab bench-plan`.

For each size: `llmgw plan` of a whole catalog from nothing (rehearsed to its end), a pass that places one
replica, steady passes over the full fleet with one heartbeat, with one report and with everybody's
heartbeat, and what a memory of passes weighs beyond the reports. CPU time of this process, best of a few; the pace
of the machine around each size is printed beside.
"""

import argparse
import dataclasses
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import seeded
from llmgw.planning.board import Board
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.rehearse import Rehearsal, rehearse
from llmgw.planning.settle import settle
from tests.lab.command import Outcome
from tests.planning.fleets import NOW, big
from tests.support.pace import pace

SIZES = ((100, 400), (1000, 1000), (1000, 4000), (5000, 5000), (5000, 20000))
LIMITS = {(1000, 4000): 1.0, (5000, 5000): 3.0}
"""Seconds for a plan from nothing."""
PLACING = 250.0
"""Microseconds for a pass that places one."""
FULL = (1000, 4000)
STEADY, WEIGHT = 2.0, 1024.0
"""Of the full fleet: milliseconds for a steady pass, bytes of memory for a shard."""
ROUNDS = 40

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One size. Seconds, microseconds, milliseconds, bytes, as the names say."""

    nodes: int
    replicas: int
    plan_s: float
    placing_us: float
    heartbeat_ms: float
    report_ms: float
    heartbeats_ms: float
    bytes_per_shard: float
    pace: float


def run(argv: Sequence[str]) -> Outcome:
    """Measure every size."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab bench-plan", description=__doc__)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes, smallest first")
    parser.add_argument("--per-model", type=int, default=10, help="replicas of each model")
    parser.add_argument("--rounds", type=int, default=3, help="plans of each size; the best counts")
    options = parser.parse_args(argv)
    rows = [measure(*size, options.per_model, options.rounds) for size in SIZES[: options.sizes]]
    print(_table(rows), file=sys.stderr)
    return Outcome(
        passed=all(_within(row) for row in rows),
        took_effect={f"{row.nodes} x {row.replicas}: replicas ready": row.replicas for row in rows},
        figures={f"{row.nodes}x{row.replicas}": dataclasses.asdict(row) for row in rows},
    )


def measure(nodes: int, replicas: int, per_model: int, rounds: int) -> Row:
    """One row of the table."""
    before = pace()
    catalog, empty = big(nodes, replicas, per_model)
    desired = Desired(catalog)
    seconds, played = _best(rounds, lambda: _plan(desired, empty))
    if sum(played.after.values()) != replicas:
        raise AssertionError(f"{sum(played.after.values())} of {replicas} are ready")
    placing, _ = _best(rounds, lambda: _place(desired, empty))
    steady = _Steady(desired, played)
    return Row(
        nodes=nodes,
        replicas=replicas,
        plan_s=round(seconds, 3),
        placing_us=round(placing / replicas * 1e6, 1),
        heartbeat_ms=steady.passes(lambda number: [steady.heartbeat(number)]),
        report_ms=steady.passes(lambda number: [steady.report(number)]),
        heartbeats_ms=steady.passes(lambda _: map(events.Heartbeat, steady.nodes)),
        bytes_per_shard=_weight(desired, played),
        pace=round((before + pace()) / 2, 2),
    )


def _plan(desired: Desired, empty: Fleet) -> Rehearsal:
    return rehearse(desired, empty, Ledger(), NOW, seeded(1), Timers())


def _place(desired: Desired, empty: Fleet) -> None:
    settle(desired, empty, Ledger(), NOW, seeded(1), Timers(), Board())


def _best(rounds: int, work: Callable[[], T]) -> tuple[float, T]:
    """The shortest of a few runs, each from a clean heap: others use this machine too."""
    times = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        result = work()
        times.append(time.process_time() - began)
    return min(times), result


class _Steady:
    """A full fleet at rest, and the loop's own way of passing over it."""

    def __init__(self, desired: Desired, played: Rehearsal) -> None:
        self.desired, self.ledger, self.now = desired, played.ledger, NOW + 10_000.0
        self.nodes = list(played.fleet.nodes)
        self.keys = list(played.fleet.shards)
        self.fleet = played.fleet.after(map(events.Heartbeat, self.nodes), self.now)
        self.board = Board()

    def heartbeat(self, number: int) -> events.Event:
        """One node is heard."""
        return events.Heartbeat(self.nodes[number % len(self.nodes)])

    def report(self, number: int) -> events.Event:
        """One shard says something new of itself."""
        shard = self.fleet.shards[self.keys[number % len(self.keys)]]
        status = dataclasses.replace(shard.status, pid=number + 1)
        return events.Reported(shard.spec.node, (status,))

    def passes(self, news: Callable[[int], Iterable[events.Event]]) -> float:
        """Milliseconds of a pass after such news, in the middle of many."""
        times = []
        for number in range(ROUNDS):
            self.now += 0.01
            self.fleet = self.fleet.after(news(number), self.now)
            began = time.process_time()
            done = settle(self.desired, self.fleet, self.ledger, self.now, seeded(1), Timers(), self.board)
            times.append(time.process_time() - began)
            self.fleet, self.ledger = done.fleet, done.ledger
            if done.actions:
                raise AssertionError(f"a fleet at rest is not left alone: {done.actions[:2]}")
        return round(statistics.median(times) * 1000, 3)


def _weight(desired: Desired, played: Rehearsal) -> float:
    """Bytes for each shard of a memory and a ledger, beyond the fleet as it was reported."""
    steady = _Steady(desired, played)
    gc.collect()
    tracemalloc.start()
    board = Board()
    kept = settle(desired, steady.fleet, Ledger(), steady.now, seeded(1), Timers(), board)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(size / len(kept.fleet.shards), 1)


def _within(row: Row) -> bool:
    limit = LIMITS.get((row.nodes, row.replicas))
    if (limit is not None and row.plan_s > limit) or row.placing_us > PLACING:
        return False
    slowest = max(row.heartbeat_ms, row.report_ms, row.heartbeats_ms)
    return (row.nodes, row.replicas) != FULL or (slowest <= STEADY and row.bytes_per_shard <= WEIGHT)


def _table(rows: Sequence[Row]) -> str:
    head = f"{'nodes × replicas':>18} {'plan s':>8} {'µs/repl.':>9} {'placing µs':>11} {'1 beat ms':>10} {'1 report':>9} {'all beats':>10} {'B/shard':>8} {'pace':>5}"
    lines = [
        f"{f'{r.nodes} × {r.replicas}':>18} {r.plan_s:8.3f} {r.plan_s / r.replicas * 1e6:9.1f} {r.placing_us:11.1f}"
        f" {r.heartbeat_ms:10.3f} {r.report_ms:9.3f} {r.heartbeats_ms:10.3f} {r.bytes_per_shard:8.0f} {r.pace:5.2f}"
        for r in rows
    ]
    return "\n".join([head, *lines])
