"""A fleet with a machine for each of its processes: what the labs of the network break.

A `Rig` whose control plane, gateway and nodes each have a network namespace and an address of their own, so
that any of them can fall silent. They trust the network and ask for tokens, as they would.
"""

import argparse
import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from tests.support import proc
from tests.support.clients import Steady
from tests.support.network import Network
from tests.support.planted import wrapper
from tests.support.processes import Process, end_by_pid
from tests.support.rig import CARDS, Rig
from tests.support.story import must

MODEL = "alpha"


class Spread(Rig):
    """The fleet. `running` are its processes by name; a planted bug is in those that `spoiled` names."""

    def __init__(
        self, directory: pathlib.Path, timers: Mapping[str, str], bug: str | None, spoiled: Sequence[str]
    ) -> None:
        self.network = Network()
        self.addresses = {name: self.network.add(name) for name in ("control", "gateway")}
        self.running: dict[str, Process] = {}
        self._tokens = directory / "tokens"
        self._tokens.mkdir()
        self._bug, self._spoiled = bug, spoiled
        super().__init__(directory, {MODEL: "I am alpha."}, timers=timers)

    # --- the processes -------------------------------------------------------------------------

    def begin(self, name: str, *options: str) -> None:
        """Start `control`, `gateway` or a node; again, where it ran before."""
        if name not in self.addresses:
            self.addresses[name] = self.network.add(name)
        inside = (*self.network.inside(name), *wrapper(self._bug if name in self._spoiled else None))
        if name == "control":
            self.running[name] = self.control("--trusted-network", *options, wrapper=inside)
            return
        token = ("--trusted-network", "--token-file", str(self._token(name)))
        if name == "gateway":
            where = ("--listen", f"{self.addresses[name]}:{self.gateway_port}", "--name", name)
            words = ("--control", self.server_address, *where, *token, *self._state(name), *options)
            self.running[name] = self.processes.llmgw(name, "gateway", *words, wrapper=inside)
        else:
            more = ("--address", self.addresses[name], *token, *options)
            self.running[name] = self.agents[name] = self.agent(name, *more, wrapper=inside)

    def kill(self, name: str) -> None:
        """SIGKILL of one process."""
        self.running[name].kill()
        must(not self.running[name].running, f"{name} is dead")

    def power_off(self, node: str) -> int:
        """Everything that runs on a node dies. Returns how many engines that were."""
        self.running[node].kill()
        engines = self.on(node)
        for seen in engines:
            end_by_pid(seen.pid)
        return len(engines)

    def on(self, node: str) -> list[proc.Seen]:
        """The engines of a node."""
        cards = str(self.cards_of(node))
        return [seen for seen in self.engines() if seen.env.get("CARDS") == cards]

    def clients(self, count: int = 2) -> Steady:
        """Clients that ask without a pause worth mentioning, until their block ends."""
        return Steady(self.gateway_port, MODEL, clients=count, pace=0.02, host=self.addresses["gateway"])

    # --- the catalog, and who asks -------------------------------------------------------------

    def serve(self, replicas: int) -> None:
        """So many replicas of the one model, all ready."""
        self.profile()
        self.model(MODEL, scaling={"min": replicas, "max": replicas})
        self.commit(f"{replicas} replicas")
        done = self.cli("apply", "catalog", "--yes", within=120.0)
        must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stdout}{done.stderr}")
        self.until(lambda: self.settled() and self.ready() == replicas, "everything is served")

    def ready(self) -> int:
        """Replicas that the control plane tells as ready."""
        return int(self.status().get("models", {}).get(MODEL, {}).get("ready", 0))

    def stands(self, node: str) -> str:
        """What the control plane thinks of a node."""
        return str(next((row["state"] for row in self.get("nodes") if row["name"] == node), ""))

    def orders(self, after: int) -> list[str]:
        """What the control plane has ordered since that event."""
        entries = self.get(f"events?after={after}")
        return [f"{entry['about']}: {entry['said']}" for entry in entries if entry["kind"] == "action"]

    def source(self, model: str) -> str:
        """A file that every machine has."""
        return f"file://{self.files[f'{model}.gguf']}"

    @property
    def server_address(self) -> str:
        """HOST:PORT of the control plane."""
        return f"{self.addresses['control']}:{self.control_port}"

    def get(self, what: str) -> Any:
        """One answer of the control plane. Raises httpx.TransportError where there is none."""
        url = f"http://{self.server_address}/v1/{what}"
        headers = {"authorization": f"Bearer {self._token('api').read_text().strip()}"}
        answer = httpx.get(url, trust_env=False, timeout=5.0, headers=headers)
        return answer.raise_for_status().json()

    def _token(self, name: str) -> pathlib.Path:
        """The file with the token of a node, of the gateway, or of whoever asks (`api`)."""
        path = self._tokens / name
        if not path.exists():
            whose = {"api": ("--api",), "gateway": ("--gateway", name)}.get(name, ("--node", name))
            made = self.cli("token", "create", *whose, "--state-dir", str(self.directory / "control"))
            must(made.returncode == 0, f"no token was made: {made.stderr}")
            path.touch(0o600)
            path.write_text(made.stdout)
        return path

    def _env(self) -> dict[str, str]:
        asks = {"LLMGW_TRUSTED_NETWORK": "1", "LLMGW_API_TOKEN_FILE": str(self._tokens / "api")}
        return {**super()._env(), **asks}


@contextlib.contextmanager
def spread(
    nodes: Sequence[str],
    replicas: int,
    *,
    timers: Mapping[str, str],
    bug: str | None = None,
    spoiled: Sequence[str] = ("control",),
    control: Sequence[str] = (),
) -> Iterator[Spread]:
    """The fleet with so many replicas ready; `control` are options of its control plane."""
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-spread-") as place,
        Spread(pathlib.Path(place), timers, bug, spoiled) as fleet,
    ):
        fleet.begin("control", *control)
        for name in ("gateway", *nodes):
            fleet.begin(name)
        fleet.until(lambda: len(fleet.standing()) == len(nodes) and fleet.settled(), "every node registers")
        fleet.serve(replicas)
        must(len(fleet.pids()) == replicas <= len(nodes) * len(CARDS), f"{replicas} engines: {fleet.pids()}")
        yield fleet


def options(argv: Sequence[str], about: str, rounds: int, mutants: Sequence[str]) -> argparse.Namespace:
    """`--n`, `--seed` and `--mutant` of a lab that is described by `about`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=rounds, help="how often it happens")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--mutant", choices=sorted(mutants), help="with this bug planted; the lab must fail")
    return parser.parse_args(argv)
