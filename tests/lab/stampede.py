"""A whole fleet that reconnects at once, and what a large one costs: `python -m tests.lab stampede --agents 500`.

Agents with a shard on each of eight cards, on the real link of an agent, in a few processes; one real control
plane with the catalog that these shards are of. It dies and starts again: all of them come back at once, with everything they run.
Meanwhile it is asked for its status every 50 ms from outside, which tells how long its loop lets people
wait, and it orders nothing. Then, with another control plane, `--steady` agents say one word a second each:
its share of a core and its memory are read from /proc. The machine's pace is printed
beside.
"""

import argparse
import collections
import json
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import crowd, profiled
from tests.support.pace import pace
from tests.support.planted import wrapper
from tests.support.ports import free_port
from tests.support.proc_figures import cpu_seconds, peak_mib, resident_mib
from tests.support.processes import Process, Processes, run_llmgw
from tests.support.story import must
from tests.support.waiting import wait_for

CARDS, MODELS = 8, 50
LIMITS = {
    "registered_s": 30.0, "lag_p99_ms": 200.0, "mib": 300.0, "steady_percent": 10.0, "steady_kb_an_agent": 25.0,
}  # fmt: skip
EVERY = 0.05
"""Seconds between two questions to the control plane."""
AFTERWARDS = 3.0
"""Seconds that it is still asked after the last one has registered."""
PATIENCE = 300.0
ONE_A_SECOND = ("--heartbeat", "1s", "--timer", "unreachable=3s")
"""A fleet of this size would be told to say less: never less than three words in `unreachable`."""
CLOCK = SystemClock()


def run(argv: Sequence[str]) -> Outcome:
    """Stampede, then steady; `--mutant counts-everything` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--steady", type=int, default=1000, help="agents that say a word a second; 0 = none")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady measurement")
    parser.add_argument("--workers", type=int, default=4, help="processes that the agents are in")
    parser.add_argument("--profile", help="where cProfile's figures of the stampeded control plane go")
    parser.add_argument("--mutant", choices=["counts-everything"])
    asked = parser.parse_args(argv)
    figures: dict[str, Any] = {}
    took = {"agents_came_back": 0, "shards_adopted": 0}
    before = pace()
    try:
        with tempfile.TemporaryDirectory(prefix="llmgw-stampede-") as place:
            _stampede(Plane(pathlib.Path(place)), asked, took, figures)
        if asked.steady:
            took["words"] = 0
            with tempfile.TemporaryDirectory(prefix="llmgw-steady-") as place:
                _steady(Plane(pathlib.Path(place)), asked, took, figures)
        figures["pace"] = (before + pace()) / 2
    except AssertionError as error:
        print(f"FAIL {error}\n" + "\n".join(getattr(error, "__notes__", [])), file=sys.stderr)
        return Outcome(False, took, figures, str(error).splitlines()[0])
    figures = {name: round(value, 2) for name, value in figures.items()}
    over = [f"{name}: {figures[name]}" for name, most in LIMITS.items() if figures.get(name, 0.0) > most]
    return Outcome(not over, took, figures, ", ".join(over))


class Plane:
    """One control plane in `directory`, and whoever asks it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory, self.port = directory, free_port()
        self.processes = Processes(directory, {"LLMGW_SERVER": f"127.0.0.1:{self.port}"})
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=60.0)

    def start(self, *more: str, by: Sequence[str] = ()) -> Process:
        """The control plane, by way of `by`."""
        where = ("--listen", f"127.0.0.1:{self.port}", "--state-dir", str(self.directory / "control"))
        return self.processes.llmgw("control", "serve", *where, "--metrics", "off", *more, wrapper=by)

    def get(self, what: str) -> Any:
        """One answer."""
        return self._http.get(f"/v1/{what}").raise_for_status().json()

    def status(self) -> dict[str, Any]:
        """What it says of itself; empty where it does not answer."""
        try:
            return dict(self.get("status"))
        except httpx.TransportError:
            return {}

    def ready(self) -> int:
        """Nodes that are there."""
        return list(self.status().get("nodes", {}).values()).count("Ready")

    def catalog(self, models: int, replicas: int) -> pathlib.Path:
        """The directory of a catalog of so many models, each so often."""
        catalog = self.directory / "catalog"
        catalog.mkdir()
        profile = {
            "kind": "profile",
            "name": "one",
            "engine": "llamacpp",
            "gpus_per_node": 1,
            "max_model_len": 4096,
        }
        bounds = {"min": replicas, "max": replicas}
        for document in (profile, *(_model(f"model-{number:03}", bounds) for number in range(models))):
            lines = (f"{key}: {json.dumps(value)}\n" for key, value in document.items())
            (catalog / f"{document['name']}.yaml").write_text("".join(lines))
        return catalog

    def comes(self, catalog: pathlib.Path, agents: int, workers: int) -> None:
        """So many agents, with what they run of the catalog; until every one has registered."""
        started = crowd.start(self.processes, self.port, catalog, agents=agents, workers=workers, cards=CARDS)

        def all_there() -> bool:
            for process in started:
                process.must_run()
            return self.ready() == agents

        wait_for(all_there, "every agent registers", within=PATIENCE, every=0.5)

    def apply(self, catalog: pathlib.Path) -> None:
        """Adopt it; nothing has to start for it."""
        words = ("apply", str(catalog), "--yes", "--wait", "accepted")
        done = run_llmgw(*words, env=self.processes.env, within=PATIENCE)
        must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stdout[-500:]}{done.stderr}")


def _model(name: str, bounds: dict[str, int]) -> dict[str, Any]:
    source = f"file:///weights/{name}.gguf"
    return {"kind": "model", "name": name, "source": source, "profiles": ["one"], "scaling": bounds}


# --- everybody comes back ------------------------------------------------------------------------


def _stampede(plane: Plane, asked: argparse.Namespace, took: dict[str, int], figures: dict[str, Any]) -> None:
    """Everybody is there; kill the control plane, start it, and watch."""
    shards = asked.agents * CARDS
    must(shards % MODELS == 0, f"{shards} shards are not as many of each of {MODELS} models")
    with plane.processes:
        catalog = plane.catalog(MODELS, shards // MODELS)
        control = plane.start()
        plane.comes(catalog, asked.agents, asked.workers)
        plane.apply(catalog)
        wait_for(lambda: _serving(plane) == shards, f"{shards} shards are ready", within=PATIENCE, every=0.5)
        control.kill()
        by = profiled.wrapper(asked.profile) or wrapper(asked.mutant)
        control, began = plane.start(by=by), CLOCK.now()
        wait_for(plane.status, "it answers", within=60.0, every=0.01)
        with Asking(plane.port) as asking:
            wait_for(lambda: asking.ready == asked.agents, "all are back", within=PATIENCE, every=0.01)
            figures["registered_s"] = CLOCK.now() - began
            time.sleep(AFTERWARDS)
        took["agents_came_back"] = plane.ready()
        took["shards_adopted"] = _serving(plane)
        figures |= asking.figures()
        figures |= {"mib": peak_mib(control.pid), "cpu_s": cpu_seconds(control.pid)}
        entries = plane.get("events?after=0")
        figures["stalls"] = sum("stalled" in entry["said"] for entry in entries)
        orders = [entry for entry in entries if entry["kind"] == "action"]
        must(took["shards_adopted"] == shards, f"{took['shards_adopted']} of {shards} shards are served")
        must(not orders, f"{len(orders)} orders were given: {orders[:2]}")


def _serving(plane: Plane) -> int:
    return sum(int(model["ready"]) for model in plane.status().get("models", {}).values())


class Asking:
    """Asks for the status every 50 ms in a thread of its own, until its block ends. `ready` = nodes in the newest answer."""

    def __init__(self, port: int) -> None:
        self.ready = 0
        self._port = port
        self._took: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Asking":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        """The lag in ms: a wait counts once for each moment at which somebody could have asked."""
        felt = [took for took in self._took for _ in range(max(1, round(took / EVERY)))]
        felt.sort()
        at = {"p50": 0.5, "p99": 0.99, "most": 1.0}
        lags = {
            f"lag_{name}_ms": 1000 * felt[min(len(felt) - 1, int(len(felt) * share))]
            for name, share in at.items()
        }
        return {"asked": len(self._took), **lags}

    def _ask(self) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", trust_env=False, timeout=60.0) as http:
            while not self._end.is_set():
                began = CLOCK.now()
                answer = http.get("/v1/status")
                self._took.append(CLOCK.now() - began)
                self.ready = collections.Counter(answer.json()["nodes"].values())["Ready"]
                self._end.wait(max(0.0, began + EVERY - CLOCK.now()))


# --- everybody is there --------------------------------------------------------------------------


def _steady(plane: Plane, asked: argparse.Namespace, took: dict[str, int], figures: dict[str, Any]) -> None:
    """What agents that are there and well cost."""
    with plane.processes:
        control = plane.start(*ONE_A_SECOND)
        wait_for(plane.status, "it answers", within=60.0)
        alone = resident_mib(control.pid)
        plane.comes(plane.catalog(0, 0), asked.steady, asked.workers)
        time.sleep(5.0)
        before = cpu_seconds(control.pid)
        time.sleep(asked.seconds)
        spent = cpu_seconds(control.pid) - before
        must(plane.ready() == asked.steady, "every agent has been heard all the while")
        took["words"] = round(asked.steady * asked.seconds)
        figures["steady_percent"] = 100 * spent / asked.seconds
        figures["steady_us_a_word"] = 1e6 * spent / took["words"]
        figures["steady_kb_an_agent"] = (resident_mib(control.pid) - alone) * 1024 / asked.steady
