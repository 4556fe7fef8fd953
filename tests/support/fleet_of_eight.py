"""Eight engines on four nodes behind a gateway: what the labs of killed processes break.

`serving` brings it up and hands it over once every replica is Ready; leaving ends everything. What the
labs look at afterwards is counted outside of llmgw: pids and start ticks, locked card files, answers.
"""

import argparse
import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from tests.support.clients import Steady
from tests.support.planted import BUGS, wrapper
from tests.support.processes import Process
from tests.support.rig import CARDS, Rig
from tests.support.story import must

NODES = ("a", "b", "c", "d")
SENTENCES = {"alpha": "I am alpha.", "beta": "I am beta."}
EACH = len(NODES) * len(CARDS) // len(SENTENCES)
"""Replicas of each model: every card is in use."""


class Eight(Rig):
    """The fleet. `running` are its processes by name; a planted bug is in those that `spoiled` names."""

    def __init__(self, directory: pathlib.Path, bug: str | None, spoiled: Sequence[str]) -> None:
        super().__init__(directory, SENTENCES)
        self.running: dict[str, Process] = {}
        self._bug, self._spoiled = bug, spoiled

    def begin(self, name: str, *options: str) -> None:
        """Start `control`, `gateway` or a node; again, where it ran before."""
        planted = wrapper(self._bug if name in self._spoiled else None)
        if name == "control":
            self.running[name] = self.control(*options, wrapper=planted)
        elif name == "gateway":
            self.running[name] = self.gateway()
        else:
            self.running[name] = self.agent(name, *options, wrapper=planted)

    def kill(self, name: str) -> None:
        """SIGKILL, and proof that the process is gone."""
        self.running[name].kill()
        must(not self.running[name].running, f"{name} is dead")

    def whole(self, before: dict[int, int]) -> None:
        """AssertionError unless exactly the engines `before` run, one a card, and none ever met another."""
        now = self.pids()
        must(now == before, f"the engines changed: {before} became {now}")
        must(self.starts() == len(before), f"{self.starts()} engines were started for {len(before)}")
        must(not self.doubles(), f"two engines on one card: {self.doubles()}")
        for node in NODES:
            must(self.held(node) == set(CARDS), f"{node} holds {self.held(node)}")

    def clients(self) -> Steady:
        """One client that asks without a pause worth mentioning, until its block ends."""
        return Steady(self.gateway_port, "alpha", clients=2, pace=0.02)


@contextlib.contextmanager
def serving(bug: str | None, spoiled: Sequence[str]) -> Iterator[Eight]:
    """The fleet with all its engines ready."""
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-eight-") as place,
        Eight(pathlib.Path(place), bug, spoiled) as fleet,
    ):
        for name in ("control", "gateway", *NODES):
            fleet.begin(name)
        fleet.profile()
        for model in SENTENCES:
            fleet.model(model, scaling={"min": EACH, "max": EACH})
        fleet.commit("eight engines")
        fleet.until(lambda: len(fleet.standing()) == len(NODES) and fleet.settled(), "every node registers")
        applied = fleet.cli("apply", "catalog", "--yes")
        must(
            applied.returncode == 0,
            f"apply ended with {applied.returncode}: {applied.stdout}{applied.stderr}",
        )
        fleet.until(fleet.settled, "everything is served")
        must(len(fleet.pids()) == len(NODES) * len(CARDS), f"eight engines run: {fleet.pids()}")
        yield fleet


def options(argv: Sequence[str], about: str, cycles: int) -> argparse.Namespace:
    """`--cycles`, `--seed` and `--mutant` of a lab that is described by `about`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cycles", type=int, default=cycles, help="how often it strikes")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which it strikes")
    parser.add_argument("--mutant", choices=sorted(BUGS), help="with this bug planted; the lab must fail")
    return parser.parse_args(argv)
