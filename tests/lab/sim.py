"""The simulation at length: `python -m tests.lab sim --seeds 200 --jobs 2`.

sim --seeds 1000 --events 500 --jobs 2     many seeds; a histogram of the faults that took effect
sim --seed 7 --trace                       one seed, every line of it
sim --seed 7 --shrink                      the fewest faults that still break it
sim --seeds 200 --forgetful                the same life with and without the memory of passes
sim --mutants all --seeds 300 --jobs 2     each planted bug must be found; each stops at its first finding
sim --mutants all --shrink                 and how short a story shows it
sim --mutant no-drain --shrink             one planted bug as a short story
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.sim import run as sim_run
from tests.sim.edges import EDGES
from tests.sim.faults import KINDS
from tests.sim.mutants import MUTANTS, planted
from tests.sim.run import Run
from tests.sim.shrink import shortest
from tests.sim.verdict import Violation

T = TypeVar("T")
R = TypeVar("R")

MANY, OFTEN = 1000, 100
"""From how many seeds on every edge of the lifecycles must have been walked how often."""

FREQUENT, KINDS_FREQUENT = 1000, 25
"""How often so many kinds of faults must have taken effect over these seeds."""

EVENTS, STORY, MEDIAN = 500, 20, 20
"""Events of a life in which a planted bug is looked for, faults in its shortest story, and the median seed."""

MORE = 5
"""Seeds whose stories are tried beside the first one, while all of them are longer than that."""

SAFETY = tuple(f"S{number}" for number in range(1, 26))
"""The invariants, each of which some planted bug must break."""


def run(argv: Sequence[str]) -> Outcome:
    """The lab that `argv` asks for."""
    options = _options(argv)
    if options.mutants:
        return _mutants(options)
    with planted(options.mutant) if options.mutant else contextlib.nullcontext():
        if options.shrink:
            return _shrunk(options)
        if options.seed is not None:
            return _one(options.seed, options.events, options.trace)
    return _many(options)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab sim", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--events", type=int, help="end the faults after so many events")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--forgetful", action="store_true", help="compare with passes that begin from nothing"
    )
    parser.add_argument("--trace", action="store_true", help="print every line")
    parser.add_argument("--shrink", action="store_true", help="look for the shortest story")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    parser.add_argument("--mutants", choices=["all", *sorted(MUTANTS)], help="find planted bugs")
    return parser.parse_args(argv)


def _one(seed: int, events: int | None, trace: bool) -> Outcome:
    found = sim_run.run(seed, events=events, trace=trace)
    print("\n".join(found.trace))
    return _outcome([found], took=found.took)


def _many(options: argparse.Namespace) -> Outcome:
    started = SystemClock().now()
    runs: list[Run] = []
    for found in _runs(options):
        runs.append(found)
        if found.violation is not None:
            print(f"seed {found.seed}: {found.violation}")
    took: collections.Counter[str] = collections.Counter(dict.fromkeys(KINDS, 0))
    for found in runs:
        took.update(found.took)
    for kind, count in sorted(took.items()):
        print(f"{count:8} {kind}")
    edges = collections.Counter(dict.fromkeys(EDGES, 0))
    for found in runs:
        edges.update(found.edges)
    for edge, count in edges.items():
        print(f"{count:8} {edge}")
    return _told(_outcome(runs, took=took, wall=SystemClock().now() - started), edges, len(runs))


def _told(outcome: Outcome, edges: collections.Counter[str], seeds: int) -> Outcome:
    """L6: over many seeds every edge of the lifecycles was walked, and enough kinds of faults struck, often
    enough to mean something."""
    rare = [edge for edge in EDGES if edges[edge] < OFTEN]
    often = sum(count >= FREQUENT for count in outcome.took_effect.values())
    figures = {**outcome.figures, "edges": len(EDGES), "edges_rare": len(rare), "kinds_frequent": often}
    said = [outcome.said]
    if seeds >= MANY and rare:
        said.append(f"L6: fewer than {OFTEN} times: {', '.join(rare)}")
    if seeds >= MANY and often < KINDS_FREQUENT:
        said.append(f"only {often} kinds of faults took effect {FREQUENT} times")
    text = "; ".join(filter(None, said))
    return dataclasses.replace(outcome, passed=not text, figures=figures, said=text)


def _runs(options: argparse.Namespace) -> Iterator[Run]:
    work = functools.partial(
        _lived, events=options.events, mutant=options.mutant, forgetful=options.forgetful
    )
    return _spread(work, range(options.first, options.first + options.seeds), options.jobs, chunksize=8)


def _spread(work: Callable[[T], R], over: Iterable[T], jobs: int, chunksize: int = 1) -> Iterator[R]:
    """`work` on each, in order, by so many processes."""
    if jobs == 1:
        yield from map(work, over)
        return
    # A fresh interpreter each: a forked one would inherit what this one patched.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        yield from pool.map(work, over, chunksize=chunksize)


def _lived(seed: int, *, events: int | None, mutant: str | None, forgetful: bool) -> Run:
    with planted(mutant) if mutant else contextlib.nullcontext():
        found = sim_run.run(seed, events=events)
        if forgetful and found.digest != sim_run.run(seed, events=events, forgetful=True).digest:
            differs = Violation("memory", "passes that begin from nothing decide otherwise")
            return dataclasses.replace(found, violation=differs)
        return found


def _outcome(runs: Iterable[Run], *, took: collections.Counter[str], wall: float = 0.0) -> Outcome:
    runs = list(runs)
    bad = [found for found in runs if found.violation is not None]
    events = sum(found.events for found in runs)
    figures = {
        "seeds": len(runs),
        "violations": len(bad),
        "events": events,
        "events_told": sum(found.told for found in runs),
        "simulated_hours": round(sum(found.seconds for found in runs) / 3600, 1),
        "hours_at_least": round(min((found.seconds for found in runs), default=0.0) / 3600, 2),
        "orders": sum(found.orders for found in runs),
    }
    if wall:
        figures["events_per_second"] = round(events / wall)
    said = "; ".join(f"seed {found.seed}: {found.violation}" for found in bad[:5])
    return Outcome(not bad, took_effect=dict(sorted(took.items())), figures=figures, said=said)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Where one planted bug showed first: its seed, None = nowhere; of the `faults` of seed `told`, `story` are left."""

    name: str
    seed: int | None
    said: str = ""
    told: int | None = None
    faults: int = 0
    story: int | None = None

    @property
    def code(self) -> str:
        """The invariant that it broke."""
        return self.said.partition(":")[0].partition(" ")[0]


def _mutants(options: argparse.Namespace) -> Outcome:
    names = list(MUTANTS) if options.mutants == "all" else [options.mutants]
    events = options.events if options.events is not None else EVENTS
    look = functools.partial(
        _hunted, first=options.first, seeds=options.seeds, events=events, shrinks=options.shrink
    )
    found: list[Found] = []
    for one in _spread(look, names, options.jobs):
        found.append(one)
        where = f"not found in {options.seeds} seeds" if one.seed is None else f"seed {one.seed}: {one.said}"
        story = (
            "" if one.story is None else f" (of {one.faults} faults of seed {one.told}, {one.story} are left)"
        )
        print(f"{one.name}: {where}{story}", flush=True)
    return _hunt(found, whole=options.mutants == "all")


def _hunt(found: Sequence[Found], *, whole: bool) -> Outcome:
    seeds = [one.seed for one in found if one.seed is not None]
    stories = [one.story for one in found if one.story is not None]
    figures: dict[str, float] = {"mutants": len(found), "found": len(seeds)}
    figures |= {"median_seed": round(statistics.median(seeds)), "latest_seed": max(seeds)} if seeds else {}
    figures |= {"longest_story": max(stories)} if stories else {}
    missed = [one.name for one in found if one.seed is None]
    long = [one.name for one in found if one.story is not None and one.story > STORY]
    uncovered = _cover(found) if whole else []
    late = whole and bool(seeds) and statistics.median(seeds) > MEDIAN
    said = "; ".join(
        filter(
            None,
            (
                f"missed: {missed}" if missed else "",
                f"long: {long}" if long else "",
                f"no bug breaks {', '.join(uncovered)}" if uncovered else "",
                "late" * late,
            ),
        )
    )
    took = {one.name: int(one.seed is not None) for one in found}
    return Outcome(not said, took_effect=took, figures=figures, said=said)


def _cover(found: Sequence[Found]) -> list[str]:
    """Print which planted bugs broke which invariant; those that none did."""
    by_code: dict[str, list[str]] = {code: [] for code in SAFETY}
    for one in found:
        if one.seed is not None:
            by_code.setdefault(one.code, []).append(one.name)
    for code, names in by_code.items():
        print(f"{code}: {', '.join(names) or 'nothing'}")
    return [code for code in SAFETY if not by_code[code]]


def _hunted(name: str, *, first: int, seeds: int, events: int, shrinks: bool) -> Found:
    """The first seed in which a planted bug shows; lives with one fault more where it hides from others."""
    meets = MUTANTS[name].meets
    with planted(name):
        failures = _failures(range(first, first + seeds), meets, events)
        failed = next(failures, None)
        if failed is None:
            return Found(name, None)
        said = str(failed.violation)
        if not shrinks:
            return Found(name, failed.seed, said)
        found = shortest(itertools.chain([failed], itertools.islice(failures, MORE)), events, enough=STORY)
        assert found is not None
        long, short = found
        return Found(name, failed.seed, said, long.seed, len(long.faults), len(short.faults))


def _failures(seeds: Iterable[int], meets: str, events: int | None) -> Iterator[Run]:
    """The lives of these seeds that end in a violation."""
    lives = (sim_run.run_meeting(seed, meets, events) for seed in seeds)
    return (found for found in lives if found.violation is not None)


def _shrunk(options: argparse.Namespace) -> Outcome:
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    meets, events = MUTANTS[options.mutant].meets if options.mutant else "", options.events
    if options.mutant and events is None:
        events = EVENTS
    failures = itertools.islice(_failures(seeds, meets, events), 1 + MORE)
    found = shortest(failures, events, enough=STORY)
    if found is None:
        return Outcome(False, said="nothing is broken, so there is nothing to shrink")
    failed, small = found
    print("\n".join(small.trace))
    print(f"{small.violation}\n{len(failed.faults)} faults became {len(small.faults)}:")
    print("\n".join(str(fault) for fault in small.faults))
    figures = {"seed": failed.seed, "faults_before": len(failed.faults), "faults": len(small.faults)}
    long = options.mutant and len(small.faults) > STORY
    said = f"{len(small.faults)} faults are left, more than {STORY}" if long else ""
    return Outcome(small.violation is not None and not long, figures=figures, said=said)
