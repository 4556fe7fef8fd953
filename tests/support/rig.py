"""A fleet with cards for labs that break it: every node has GPUs that are files, held by the engines that use them.

Called by the labs of the node. The cards come from a shared library that stands in for NVML, so the
true binding reports them; an engine holds an exclusive `flock` on the file of each card it was given,
before it becomes llama-server. A second engine on a held card says so and exits: what really holds a
card, and whether two ever did, is read from the files, whatever any process of llmgw believes.
"""

import fcntl
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from tests.lab.command import CannotRun
from tests.support import proc
from tests.support.engines import LLAMA_SERVER
from tests.support.processes import Process
from tests.support.stage import PROFILE, Stage
from tests.support.waiting import wait_for

NVML = pathlib.Path(__file__).parents[1] / "agent" / "nvml.c"
CARDS = ("GPU-aaaa", "GPU-bbbb")
"""The cards of every node, as the stand-in library names them."""

ENGINE = """\
#!/bin/sh
# Hold the file of every card we were given, then become the engine: the locks are ours until we end.
IFS=,
fd=3
for card in $CUDA_VISIBLE_DEVICES; do
    eval "exec $fd>>\\"$CARDS/$card\\""
    flock -n $fd || {{ echo "DOUBLE_ALLOC $card" | tee -a "$CARDS/doubles"; exit 77; }}
    fd=$((fd + 1))
done
unset IFS
echo "$LLMGW_SHARD" >> "$CARDS/starts"
exec {engine} "$@"
"""
TIMERS = {
    "unreachable": "2s",
    "lost": "60s",
    "place_grace": "5s",
    "lost_grace": "60s",
    "min_ready": "200ms",
    "backoff_base": "500ms",
    "stop_grace": "5s",
    "gateway_silent": "3s",
}


class Rig(Stage):
    """The fleet. `sentences` is what each model says; every replica takes one card."""

    def __init__(
        self, directory: pathlib.Path, sentences: Mapping[str, str], *, timers: Mapping[str, str] = TIMERS
    ) -> None:
        compiler = shutil.which("cc")
        if compiler is None or shutil.which("flock") is None:
            raise CannotRun("a C compiler and flock are needed")
        super().__init__(directory, sentences, timers=timers)
        self.server.gate.set()
        self.agents: dict[str, Process] = {}
        self._library = directory / "nvml"
        self._library.mkdir()
        built = self._library / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(NVML)], check=True)
        self.engine = directory / "card-engine"
        self.engine.write_text(ENGINE.format(engine=LLAMA_SERVER))
        self.engine.chmod(0o755)

    def profile(self, length: int = 4096, name: str = "small", more: str = "") -> None:
        """One card for each replica; `more` are lines of YAML."""
        text = PROFILE.format(length=length).replace(
            "gpus_per_node: 0", "gpus_per_node: 1\ngpu: {memory: 1GiB}"
        )
        (self.repository / "catalog" / f"{name}.yaml").write_text(
            text.replace("name: small", f"name: {name}") + more
        )

    def cards_of(self, node: str) -> pathlib.Path:
        """The directory of a node's card files."""
        directory = self.directory / f"cards-{node}"
        directory.mkdir(exist_ok=True)
        return directory

    def agent(self, name: str, *more: str, wrapper: Sequence[str] = (), nvml: str = "") -> Process:
        """Start an agent with cards; `more` are options of it, `wrapper` a program that starts it.

        `nvml` are words for the stand-in library.
        """
        env = self.cards_seen(name, nvml)
        options = ("--engine", f"llamacpp={self.engine}", *self.node_options(name), *more)
        return self.processes.llmgw(name, "agent", *options, env=env, wrapper=wrapper)

    def cards_seen(self, name: str, nvml: str = "") -> Mapping[str, str]:
        """The environment in which an agent finds its cards."""
        return {
            "LD_LIBRARY_PATH": str(self._library),
            "CARDS": str(self.cards_of(name)),
            "FAKE_NVML": f"used0 {nvml}",
        }

    # --- ground truth --------------------------------------------------------------------------

    def held(self, node: str) -> set[str]:
        """The cards of `node` that some live process holds."""
        return {card for card in CARDS if _locked(self.cards_of(node) / card)}

    def doubles(self) -> list[str]:
        """Every time an engine found its card held by another one."""
        return [
            line for path in self.directory.glob("cards-*/doubles") for line in path.read_text().splitlines()
        ]

    def starts(self) -> int:
        """How many engines were ever executed with a card."""
        found = self.directory.glob("cards-*/starts")
        return sum(len(path.read_text().splitlines()) for path in found)

    def pids(self) -> dict[int, int]:
        """Every engine: pid → start ticks, from /proc."""
        return {seen.pid: seen.ticks for seen in self.engines()}

    def by_shard(self) -> dict[str, list[proc.Seen]]:
        """The live processes of each shard that has any."""
        found: dict[str, list[proc.Seen]] = {}
        for seen in self.engines():
            found.setdefault(seen.shard, []).append(seen)
        return found

    # --- waiting -------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the control plane says of itself; empty where none answers."""
        try:
            return dict(self.get("status"))
        except httpx.TransportError:
            return {}

    def get(self, what: str) -> Any:
        """One answer of the control plane. Raises httpx.TransportError where there is none."""
        url = f"http://{self.server_address}/v1/{what}"
        return httpx.get(url, trust_env=False, timeout=5.0).raise_for_status().json()

    def standing(self) -> dict[str, str]:
        """Every node that is known, with what it is worth."""
        return dict(self.status().get("nodes", {}))

    def last_event(self) -> int:
        """The number of the newest event."""
        return int(self.status().get("event", 0))

    def registered(self, node: str, after: int) -> bool:
        """Whether `node` registered after that event."""
        try:
            entries = self.get(f"events?after={after}")
        except httpx.TransportError:
            return False
        return any(entry["about"] == node and entry["said"].startswith("registered") for entry in entries)

    def settled(self) -> bool:
        """Every node Ready, nothing outstanding."""
        status = self.status()
        ready = set(status.get("nodes", {}).values()) == {"Ready"}
        return ready and not status.get("outstanding") and not status.get("unplaced")

    def until(self, condition: Callable[[], object], what: str, within: float = 30.0) -> None:
        """Wait for `condition`; AssertionError with `what` otherwise."""
        wait_for(condition, what, within=within, every=0.1)


def _locked(path: pathlib.Path) -> bool:
    if not path.exists():
        return False
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
