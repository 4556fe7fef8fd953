"""Two of what there may be one of: `python -m tests.lab fence --n 50`.

Half of the rounds start a second control plane beside the first, from a copy of its state or from
nothing, and let an agent obey it: the first one must then command nobody, say so, and refuse an apply;
restarted, it takes over again. The other half start a second agent with a copy of a node's identity
while the first one lives: it is refused with both addresses named, and starts nothing. Engines never
notice: same pids, one a card, in every round.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

from tests.lab.command import Outcome
from tests.support.planted import wrapper
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.rig import CARDS, Rig
from tests.support.story import must


def run(argv: list[str]) -> Outcome:
    """`--n` rounds; `--mutant never-gives-way` or `same-node-twice` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--mutant", choices=["never-gives-way", "same-node-twice"])
    asked = parser.parse_args(argv)
    took = dict.fromkeys(
        ("second_control_planes", "fenced", "applies_refused", "taken_over", "second_agents", "refused"), 0
    )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="llmgw-fence-") as place,
            Fenced(pathlib.Path(place), asked.mutant) as rig,
        ):
            rig.begin()
            before = rig.pids()
            for number in range(asked.n):
                (rig.two_agents if number % 2 else rig.two_control_planes)(number, took)
                must(rig.pids() == before, f"round {number}: the engines changed: {before} {rig.pids()}")
                must(not rig.doubles(), f"round {number}: two engines on one card")
                must(rig.starts() == len(before), f"round {number}: {rig.starts()} engines were started")
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, {"engines": len(before)})


class Fenced(Rig):
    """One node that serves one model twice, and somebody who doubles what there is one of."""

    def __init__(self, directory: pathlib.Path, mutant: str | None) -> None:
        super().__init__(directory, {"alpha": "I am alpha."})
        self._mutant = mutant
        self._control: Process | None = None

    def begin(self) -> None:
        """Everything runs."""
        self._control = self.control(wrapper=wrapper(self._mutant))
        self.agents["a"] = self.agent("a", wrapper=wrapper(self._mutant))
        self.profile()
        self.model("alpha", scaling={"min": len(CARDS), "max": len(CARDS)})
        self.commit("one model")
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the node registers")
        must(self.cli("apply", "catalog", "--yes").returncode == 0, "the catalog is applied")
        self.until(self.settled, "the model is ready")

    def two_control_planes(self, number: int, took: dict[str, int]) -> None:
        """A newer one is obeyed; the older one commands nobody until it is started again."""
        assert self._control is not None
        state, port = self.directory / f"second-{number}", free_port()
        if number % 4 == 0:
            shutil.copytree(self.directory / "control", state, ignore=shutil.ignore_patterns("*lock*"))
        first, self.control_port = self.control_port, port
        second = self.processes.llmgw(
            f"second-{number}", "serve", "--listen", self.server_address, "--heartbeat", "200ms",
            "--state-dir", str(state), *(word for name, value in self.timers.items() for word in ("--timer", f"{name}={value}")),
        )  # fmt: skip
        took["second_control_planes"] += 1
        self._obey()
        self.until(lambda: list(self.standing().values()) == ["Ready"], "the node obeys the second one")
        self.control_port = first
        self._obey()
        self.until(lambda: self.status().get("fenced"), "the first one finds itself outranked")
        took["fenced"] += 1
        refused = self.cli("apply", "catalog", "--yes", "--expect", "p-000000")
        must(refused.returncode in (4, 5), f"an apply at the older one ended with {refused.returncode}")
        took["applies_refused"] += refused.returncode == 4
        second.stop()
        self._control.kill()
        self._control = self.control(wrapper=wrapper(self._mutant))
        self.until(lambda: self.settled() and not self.status()["fenced"], "it takes over again")
        took["taken_over"] += 1

    def two_agents(self, number: int, took: dict[str, int]) -> None:
        """The same identity from another directory, while the first agent lives."""
        state = self.directory / f"twin-{number}"
        shutil.copytree(self.directory / "a", state, ignore=shutil.ignore_patterns("*lock*", "cache", "logs"))
        told = self.last_event()
        name = f"twin-{number}" if number % 4 == 1 else "a"
        twin = self.processes.llmgw(
            f"twin-{number}", "agent", "--control", self.server_address, "--name", name,
            "--ports", f"{free_port()}-{free_port() + 1000}", "--state-dir", str(state),
            env={"LD_LIBRARY_PATH": str(self._library), "CARDS": str(self.cards_of("twin"))},
        )  # fmt: skip
        took["second_agents"] += 1
        self.until(
            lambda: twin.running and "is refused" in twin.said() + twin.out.read_text(),
            "the second one is refused",
        )
        took["refused"] += 1
        twin.must_run()
        must(not self.registered(name, told), "the second one is not registered")
        must(self.settled(), f"the first one is not disturbed: {self.status()}")
        twin.stop()

    def _obey(self) -> None:
        """The agent is restarted and obeys whoever is at `control_port` now."""
        self.agents["a"].kill()
        self.agents["a"] = self.agent("a", wrapper=wrapper(self._mutant))
