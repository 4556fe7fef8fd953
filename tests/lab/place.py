"""Placement against the best possible one: `python -m tests.lab place --against ilp [--cases 100]`.

Random mixed fleets (four GPU types, constraints, gangs) and fleets drawn from the openb histogram, each
asked for a little more than it has; the oracle is an integer programme (HiGHS). A ratio is GPUs in use
over the optimum's.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence

from llmgw.catalog.model import Catalog
from llmgw.fleet.expiry import Timers
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.planning.actions import Assign
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.settle import Settled, settle
from tests.lab.command import Outcome
from tests.planning.fleets import NOW, mixed, openb
from tests.planning.optimum import best

MIXED, OPENB = 0.99, 0.98


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One fleet: GPUs in use, the optimum's, sibling shards that share a node, and seconds of both."""

    placed: int
    optimum: float
    together: int
    seconds: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.placed / self.optimum if self.optimum else 1.0


def run(argv: Sequence[str]) -> Outcome:
    """Compare every case."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab place", description=__doc__)
    parser.add_argument("--against", choices=["ilp"], default="ilp", help="the oracle")
    parser.add_argument("--cases", type=int, default=100, help="mixed fleets")
    parser.add_argument("--openb", type=int, default=4, help="fleets of the openb histogram")
    parser.add_argument("--share", type=float, default=1.0, help="of the openb fleet's 1,213 nodes")
    options = parser.parse_args(argv)
    small = _compared("mixed", options.cases, mixed)
    large = _compared("openb", options.openb, lambda seed: openb(seed, options.share))
    return Outcome(
        passed=_mean(small) >= MIXED and _mean(large) >= OPENB,
        took_effect={"mixed fleets": len(small), "openb fleets": len(large)},
        figures={
            **_figures("mixed", small),
            **_figures("openb", large),
            "bounds": {"mixed": MIXED, "openb": OPENB},
        },
    )


def compare(catalog: Catalog, fleet: Fleet) -> Result:
    """Place the catalog and ask the oracle what could have been."""
    clock = SystemClock()
    began = clock.now()
    done = settle(Desired(catalog), fleet, Ledger(), NOW, seeded(1), Timers())
    placed = clock.now()
    optimum = best([node.info for node in fleet.nodes.values()], catalog)
    return Result(_gpus(done), optimum, _together(done), (placed - began, clock.now() - placed))


def _gpus(done: Settled) -> int:
    return sum(len(action.spec.gpus) for action in done.actions if isinstance(action, Assign))


def _together(done: Settled) -> int:
    where = [(a.spec.model, a.spec.node) for a in done.actions if isinstance(a, Assign)]
    return len(where) - len(set(where))


def _compared(name: str, cases: int, draw: Callable[[int], tuple[Catalog, Fleet]]) -> list[Result]:
    results = []
    for seed in range(cases):
        results.append(compare(*draw(seed)))
        print(f"{name} {seed}: {results[-1].ratio:.4f} of {results[-1].optimum:.0f} GPUs", file=sys.stderr)
    return results


def _mean(results: list[Result]) -> float:
    return statistics.fmean(result.ratio for result in results) if results else 0.0


def _figures(name: str, results: list[Result]) -> dict[str, object]:
    if not results:
        return {}
    return {
        f"{name}_mean": round(_mean(results), 5),
        f"{name}_worst": round(min(result.ratio for result in results), 5),
        f"{name}_optimal": f"{sum(result.ratio > 0.9999 for result in results)}/{len(results)}",
        f"{name}_siblings_together": sum(result.together for result in results),
        f"{name}_place_s": round(statistics.fmean(result.seconds[0] for result in results), 3),
        f"{name}_oracle_s": round(statistics.fmean(result.seconds[1] for result in results), 3),
    }
