"""The agent as a service of a real systemd, by the unit that we ship: `python -m tests.lab systemd`.

`systemctl start` returns when the agent says that it is up. Then it is restarted, killed, stopped and frozen
until the watchdog ends it, while two engines serve: they keep pid and start ticks, answer while there is no agent, and each
agent has them again. Every option comes from the environment file, as the unit says.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence

from tests.lab.command import Outcome
from tests.support import engines, namespaces
from tests.support.manager import Manager, managed
from tests.support.processes import LLMGW, run_llmgw
from tests.support.rig import CARDS, Rig
from tests.support.story import must

UNIT = "llmgw-agent.service"
SENTENCES = {"alpha": "I am alpha.", "beta": "I am beta."}
WAYS = ("restart", "kill", "stop", "freeze")
DROP_IN = """\
[Service]
EnvironmentFile={environment}
RestartSec=200ms
WatchdogSec={watchdog}
"""
WATCHDOG = "5s"


def run(argv: Sequence[str]) -> Outcome:
    """`--n` times each way; `--mutant kills-the-group`, a unit without KillMode=process, must turn it red."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab systemd", description=__doc__)
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--mutant", choices=["kills-the-group"])
    asked = parser.parse_args(argv)
    if not namespaces.inside():
        return namespaces.again("systemd", argv)
    took = dict.fromkeys((*WAYS, "answers_without_the_agent", "warned_of_the_other_unit"), 0)
    try:
        with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as place, Served(pathlib.Path(place)) as rig:
            figures = rig.story(asked.n, asked.mutant, took)
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


class Served(Rig):
    """One node, whose agent is a service."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(directory, SENTENCES)

    def story(self, times: int, mutant: str | None, took: dict[str, int]) -> Mapping[str, object]:
        """All of it; the figures."""
        home = self.directory / "manager"
        home.mkdir()
        self.control()
        with managed(home, self.processes) as manager:
            self._install(manager, "control-group" if mutant else "process")
            manager.ask("start", UNIT)
            self.until(lambda: list(self.standing().values()) == ["Ready"], "the node registers")
            self._serve()
            before = self.pids()
            for number in range(times * len(WAYS)):
                way = WAYS[number % len(WAYS)]
                self._strike(manager, way, took)
                must(self.pids() == before, f"after {way} the engines are others: {before} {self.pids()}")
                took[way] += 1
            self._warned(manager, took)
            restarts = int(manager.shown(UNIT)["NRestarts"])
            must(not self.doubles(), f"two engines on one card: {self.doubles()}")
            self._emptied()
            manager.ask("stop", UNIT)
            return {"engines": len(before), "restarts_by_systemd": restarts}

    def _install(self, manager: Manager, kill_mode: str) -> None:
        """The unit as `llmgw unit` prints it, and its environment file."""
        words = [*self.node_options("a"), "--metrics", "off", "--engine", f"llamacpp={self.engine}"]
        options = {
            f"LLMGW_AGENT_{name[2:].upper().replace('-', '_')}": value
            for name, value in zip(words[::2], words[1::2], strict=True)
        }
        of_agent = {"PATH": self._env()["PATH"], "PYTHONPATH": os.getcwd()}
        environment = self.directory / "agent.env"
        environment.write_text(
            "".join(
                f'{name}="{value}"\n'
                for name, value in {**options, **of_agent, **self.cards_seen("a")}.items()
            )
        )
        printed = run_llmgw("unit", "agent")
        must(printed.returncode == 0, f"llmgw unit: {printed.stderr}")
        must(f"ExecStart={LLMGW} agent" in printed.stdout, "the unit names the program that printed it")
        text = printed.stdout.replace("KillMode=process", f"KillMode={kill_mode}")
        manager.install(UNIT, text, DROP_IN.format(environment=environment, watchdog=WATCHDOG))

    def _serve(self) -> None:
        self.profile()
        for model in SENTENCES:
            self.model(model, scaling={"min": 1, "max": 1})
        self.commit("two models")
        applied = self.cli("apply", "catalog", "--yes")
        must(applied.returncode == 0, f"apply: {applied.stdout}{applied.stderr}")
        self.until(lambda: self.settled() and len(self.pids()) == len(CARDS), "both models are served")

    def _strike(self, manager: Manager, way: str, took: dict[str, int]) -> None:
        """The agent goes in one way, and is there again with its engines."""
        told, pid = self.last_event(), int(manager.shown(UNIT)["MainPID"])
        if way == "restart":
            manager.ask("restart", UNIT)
        elif way == "stop":
            manager.ask("stop", UNIT)
            for row in self.get("replicas"):
                for shard in row["shards"]:
                    said = engines.chat(shard["port"], row["model"])
                    must(said == SENTENCES[row["model"]], "the engine answers by itself")
                    took["answers_without_the_agent"] += 1
            manager.ask("start", UNIT)
        else:
            os.kill(pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
        self.until(lambda: self._another(manager, pid), f"after {way} there is another agent")
        self.until(lambda: self.registered("a", told), f"after {way} it registers")
        self.until(self._adopted, f"after {way} it has its engines")

    def _another(self, manager: Manager, before: int) -> bool:
        shown = manager.shown(UNIT)
        return shown["ActiveState"] == "active" and int(shown["MainPID"]) not in (0, before)

    def _adopted(self) -> bool:
        shards = [shard for row in self.get("replicas") for shard in row["shards"]]
        ready = all(shard["adopted"] and shard["state"] == "ready" for shard in shards)
        return len(shards) == len(CARDS) and ready and self.settled()

    def _warned(self, manager: Manager, took: dict[str, int]) -> None:
        """With another KillMode the agent says, once it is started, what its next restart would do."""
        self._install(manager, "control-group")
        told, pid = self.last_event(), int(manager.shown(UNIT)["MainPID"])
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self._another(manager, pid), "there is another agent")
        self.until(lambda: self.registered("a", told), "it registers")
        warnings = [said for node in self.get("nodes") for said in node["warnings"]]
        took["warned_of_the_other_unit"] += any("KillMode is control-group" in said for said in warnings)
        self._install(manager, "process")

    def _emptied(self) -> None:
        """Nothing is wanted any more, and nothing is left."""
        for model in SENTENCES:
            self.remove(model)
        self.commit("nothing")
        applied = self.cli("apply", "catalog", "--yes", "--allow-empty")
        must(applied.returncode == 0, f"apply: {applied.stdout}{applied.stderr}")
        self.until(lambda: not self.pids() and not self.held("a"), "every engine ends")
