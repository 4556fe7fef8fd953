"""The whole story, by itself: `python -m tests.lab tour`.

A control plane, two agents and a gateway on loopback, real engines, a catalog in git, and clients that
never stop asking. Each step does one thing that operators do or that happens to them, and proves from
the outside (pids, start ticks, contents of answers, bytes served) that it took effect. The steps stand
in `STEPS`, in order; a step that fails ends the tour.
"""

import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import openai

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import proc
from tests.support.clients import Steady, client, plain, streamed
from tests.support.processes import Process, end_by_pid
from tests.support.stage import Stage
from tests.support.waiting import wait_for

NODES = ("left", "right")
SENTENCES = {
    "alpha": "I am alpha, and this is my answer.",
    "beta": "I am beta, who helps alpha out.",
    "gamma": "tick tock",
}
TIMERS = {
    "unreachable": "2s",
    "lost": "20s",
    "place_grace": "3s",
    "lost_grace": "20s",
    "min_ready": "500ms",
    "backoff_base": "1s",
    "stop_grace": "5s",
}


class Tour:
    """The stage, its processes by name, and what each step has proven."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.running: dict[str, Process] = {}
        self.took_effect: dict[str, Any] = {}
        self.figures: dict[str, float] = {}
        self.clock = SystemClock()

    def ready(self, model: str) -> list[dict[str, Any]]:
        """The Ready replicas of a model, as `llmgw replicas` tells."""
        rows = self.stage.json("replicas")
        return [row for row in rows if row["model"] == model and row["state"] == "Ready"]

    def pids(self, model: str = "") -> dict[int, int]:
        """The engines of a model: pid → start ticks, from /proc."""
        return {seen.pid: seen.ticks for seen in self.stage.engines(model)}

    def apply(self, message: str, *options: str, within: float = 60.0) -> float:
        """Commit the catalog and apply it. Returns the seconds until it was done."""
        self.stage.commit(message)
        began = self.clock.now()
        done = self.stage.cli("apply", "catalog", "--yes", *options, within=within)
        must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stdout}{done.stderr}")
        return self.clock.now() - began

    def ask(self, model: str) -> str:
        """One plain answer through the gateway."""
        with client(self.stage.gateway_port) as asked:
            return plain(asked, model)

    def clients(self, model: str) -> Steady:
        """Clients that ask for `model` until the block ends."""
        return Steady(self.stage.gateway_port, model)


def must(held: object, said: str) -> None:
    """AssertionError with `said` unless it held."""
    assert held, said


# --- the steps, in order -----------------------------------------------------------------------


def start(tour: Tour) -> None:
    """Everything is started in any order: the agents and the gateway come before their control plane."""
    for name in NODES:
        tour.running[name] = tour.stage.agent(name)
    tour.running["gateway"] = tour.stage.gateway()
    tour.running["control"] = tour.stage.control()

    def registered() -> bool:
        for process in tour.running.values():
            process.must_run()
        nodes = tour.stage.cli("nodes", "-o", "json")
        return nodes.returncode == 0 and nodes.stdout.count('"Ready"') == len(NODES)

    wait_for(registered, "both nodes register", within=20.0)
    tour.took_effect["nodes"] = len(NODES)


def validate(tour: Tour) -> None:
    """A good catalog passes; a broken one is refused with the place of the mistake."""
    stage = tour.stage
    stage.profile()
    stage.model("alpha", aliases=["default"], fallbacks=["beta"])
    stage.model("beta")
    stage.model("gamma")
    must(stage.cli("validate", "catalog").returncode == 0, "the catalog is valid")
    stage.model("gamma", fallbacks=["delta"])
    broken = stage.cli("validate", "catalog")
    stage.model("gamma")
    must(broken.returncode == 3, f"a broken catalog ends with {broken.returncode}")
    said = broken.stdout + broken.stderr
    must("catalog/gamma.yaml:" in said and "delta" in said, f"the mistake has a place: {said}")
    tour.took_effect["refused"] = next(line.strip() for line in said.splitlines() if "gamma.yaml" in line)


def plan(tour: Tour) -> None:
    """The plan names each action's node, reason, catalog line and bytes, in order, and changes nothing."""
    rows = tour.stage.json("plan", "catalog")["rows"]
    added = [row for row in rows if row["symbol"] == "+"]
    must({row["model"] for row in added} == set(SENTENCES), f"three models are added: {rows}")
    for row in added:
        must(row["nodes"] and row["said"] and row["place"], f"node, reason and place are named: {row}")
        must(not row["held"], f"the weights are still to fetch: {row}")
    must(not tour.stage.engines(), "a plan starts nothing")
    tour.took_effect["plan"] = [f"{row['symbol']} {row['model']} on {row['nodes'][0]}" for row in added]


def fetch(tour: Tour) -> None:
    """While the weights come, `llmgw replicas` shows how far they are; then everything becomes ready."""
    tour.apply("three models", "--wait", "accepted")

    def progress() -> str:
        said = tour.stage.cli("replicas").stdout
        return next(
            (line.strip() for line in said.splitlines() if "fetching http" in line and "%" in line), ""
        )

    tour.took_effect["progress"] = wait_for(progress, "a fetch shows its progress", within=20.0)
    must(not tour.stage.engines(), "nothing runs before its weights are there")
    tour.stage.server.gate.set()
    tour.figures["first_ready_s"] = tour.apply("nothing else")
    must(all(tour.ready(model) for model in SENTENCES), "every model is ready")


def chat(tour: Tour) -> None:
    """Through the gateway: plain, streamed and by alias, each answer is the model's own."""
    with client(tour.stage.gateway_port) as asked:
        answers = {
            "plain": plain(asked, "alpha"),
            "streamed": streamed(asked, "alpha"),
            "alias": plain(asked, "default"),
            "another": plain(asked, "beta"),
        }
    wanted = {
        **dict.fromkeys(("plain", "streamed", "alias"), SENTENCES["alpha"]),
        "another": SENTENCES["beta"],
    }
    must(answers == wanted, f"the answers are {answers}")
    tour.took_effect["answers"] = sorted(answers)


def engine_dies(tour: Tour) -> None:
    """An engine is killed: the fallback answers meanwhile, and after the back-off there is another one."""
    (old,) = tour.pids("alpha")
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        end_by_pid(old)
        killed = tour.clock.now()
        wait_for(lambda: clients.answers.get(SENTENCES["beta"]), "the fallback answers")
        wait_for(lambda: tour.pids("alpha"), "the engine is rebuilt", within=20.0)
        wait_for(lambda: tour.ready("alpha"), "alpha is ready again", within=20.0)
        tour.figures["rebuilt_s"] = tour.clock.now() - killed
        known = clients.answers[SENTENCES["alpha"]]
        wait_for(lambda: clients.answers[SENTENCES["alpha"]] > known, "alpha answers again")
    (new,) = tour.pids("alpha")
    must(new != old, "the new engine is another process")
    tour.figures["failed_with_the_engine"] = len(clients.failures)
    tour.took_effect["answered_by_fallback"] = clients.answers[SENTENCES["beta"]]
    tour.took_effect["new_pid"] = new != old


def scale(tour: Tour) -> None:
    """Bounds are raised: a second replica comes up on the other node, the first is not touched."""
    before = tour.pids("alpha")
    tour.stage.model("alpha", aliases=["default"], fallbacks=["beta"], scaling={"min": 2, "max": 2})
    tour.figures["scaled_s"] = tour.apply("alpha twice")
    rows, after = tour.ready("alpha"), tour.pids("alpha")
    must(len(rows) == 2 and len(after) == 2, f"there are two replicas: {rows}")
    must(before.items() <= after.items(), "the first replica runs on")
    must({row["nodes"][0] for row in rows} == set(NODES), f"siblings stand apart: {rows}")
    tour.took_effect["replicas"] = 2


def roll(tour: Tour) -> None:
    """An engine argument is changed: every engine is replaced while clients go on, and none of them fails."""
    before = tour.pids("alpha")
    tour.stage.profile(length=8192)
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        tour.figures["rolled_s"] = tour.apply("longer contexts", within=120.0)
        known = clients.done
        wait_for(lambda: clients.done > known, "an answer after the roll-out")
    after = tour.pids("alpha")
    must(len(after) == 2 and not before.keys() & after.keys(), f"every engine is new: {before} {after}")
    must(not clients.failures, f"requests failed: {clients.failures[:3]}")
    must(set(clients.answers) == {SENTENCES["alpha"]}, f"no fallback was needed: {clients.answers}")
    tour.figures["requests_while_rolling"] = clients.done
    tour.took_effect["engines_replaced"] = len(before)


def agent_dies(tour: Tour) -> None:
    """An agent is killed and started again: its engines answer all the time and are adopted as they are."""
    name = NODES[0]
    before = tour.pids()
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        tour.running[name].kill()
        known = clients.done
        wait_for(lambda: clients.done >= known + 20, "answers without the agent")
        must(tour.pids() == before, "no engine ended with its agent")
        tour.running[name] = tour.stage.agent(name)
        adopted = wait_for(lambda: adopted_on(tour, name), "the engines are adopted", within=20.0)
        known = clients.done
        wait_for(lambda: clients.done >= known + 20, "answers after the adoption")
    must(tour.pids() == before, f"same pids, same start: {before} {tour.pids()}")
    must(not clients.failures, f"requests failed: {clients.failures[:3]}")
    tour.took_effect["adopted"] = adopted
    tour.figures["requests_without_agent"] = clients.done


def adopted_on(tour: Tour, node: str) -> int:
    """How many shards of a node run adopted, once all of its Ready ones do."""
    shards = [
        shard for row in tour.stage.json("replicas") for shard in row["shards"] if shard["node"] == node
    ]
    return len(shards) if all(shard["adopted"] and shard["state"] == "ready" for shard in shards) else 0


def control_dies(tour: Tour) -> None:
    """The control plane is killed: the gateway answers all the time; the next one knows every replica again."""
    before, rows = tour.pids(), replicas(tour)
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        tour.running["control"].kill()
        known = clients.done
        wait_for(lambda: clients.done >= known + 50, "answers without a control plane")
        must(tour.stage.cli("status").returncode == 69, "the control plane is really away")
        tour.running["control"] = tour.stage.control()
        wait_for(lambda: replicas(tour) == rows, "every replica is known again", within=20.0)
        wait_for(lambda: settled(tour), "nothing is outstanding", within=20.0)
    must(tour.pids() == before, f"no engine was started or stopped: {before} {tour.pids()}")
    must(not clients.failures, f"requests failed: {clients.failures[:3]}")
    tour.took_effect["replicas_known_again"] = len(rows)
    tour.figures["requests_without_control"] = clients.done


def replicas(tour: Tour) -> set[str]:
    """The ids of the Ready replicas; empty while no control plane answers."""
    ran = tour.stage.cli("replicas")
    lines = [line.split() for line in ran.stdout.splitlines()]
    return {words[0] for words in lines if len(words) > 1 and words[1] == "Ready"}


def settled(tour: Tour) -> bool:
    """Whether every node is Ready and nothing is outstanding."""
    status = tour.stage.json("status")
    return not status["outstanding"] and set(status["nodes"].values()) == {"Ready"}


def remove(tour: Tour) -> None:
    """A model is removed while a client streams from it: the stream ends whole, then the engine stops."""
    (pid,) = tour.pids("gamma")
    stream = Stream(tour.stage.gateway_port)
    stream.start()
    wait_for(lambda: stream.words, "the stream begins")
    tour.stage.remove("gamma")
    tour.figures["removed_s"] = tour.apply("without gamma")
    stream.join()
    must(stream.error == "" and stream.words == stream.LENGTH, f"{stream.words} words, {stream.error}")
    must(not proc.alive(pid) and not tour.pids("gamma"), "its engine has stopped")
    tour.took_effect["streamed_through_the_drain"] = stream.words


class Stream(threading.Thread):
    """One long stream of gamma. `words` counts what has come; `error` is how it ended otherwise than whole."""

    LENGTH = 3000

    def __init__(self, port: int) -> None:
        super().__init__(name="long stream")
        self.words = 0
        self.error = ""
        self._port = port

    def run(self) -> None:
        """Read to the end."""
        with client(self._port) as asked:
            try:
                streamed(asked, "gamma", max_tokens=self.LENGTH, end="length", each=self._word)
            except (openai.OpenAIError, ValueError) as error:
                self.error = f"{type(error).__name__}: {error}"

    def _word(self, _: str) -> None:
        self.words += 1


def collect(tour: Tour) -> None:
    """`gc` lists the weights of the removed model; `--collect` removes exactly them, and no foreign file."""
    (entry,) = tour.stage.cached("gamma")
    kept = tour.stage.cached("alpha")
    strangers = [entry.parent / "notes.txt", entry.parent / ("f" * 64)]
    for stranger in strangers:
        stranger.write_text("an operator's own")
    listed = tour.stage.json("gc")
    must([item["entry"]["cache_name"] for item in listed["candidates"]] == [entry.name], f"listed: {listed}")
    must(entry.exists(), "a listing removes nothing")
    done = tour.stage.cli("gc", "--collect", "--expect", listed["id"])
    must(done.returncode == 0, f"gc ended with {done.returncode}: {done.stdout}{done.stderr}")
    must(not entry.exists(), "the weights of gamma are gone")
    must(tour.stage.cached("alpha") == kept, "the weights of alpha stay")
    must(all(stranger.exists() for stranger in strangers), "foreign files stay")
    tour.took_effect["collected"] = done.stdout.strip().splitlines()[-1]


def stop(tour: Tour) -> None:
    """The last models leave, every process ends on SIGTERM, and nothing with our mark is left."""
    tour.stage.remove("alpha")
    tour.stage.remove("beta")
    tour.apply("nothing any more")
    must(not tour.pids(), f"every engine has stopped: {tour.pids()}")
    codes = {name: process.stop() for name, process in tour.running.items()}
    must(not any(codes.values()), f"every process ends well: {codes}")
    left = [seen.command for seen in proc.everyone() if str(tour.stage.directory) in seen.command]
    must(not left, f"nothing is left: {left}")
    tour.took_effect["ended"] = sorted(codes)


STEPS: tuple[Callable[[Tour], None], ...] = (
    start, validate, plan, fetch, chat, engine_dies, scale, roll, agent_dies, control_dies, remove, collect, stop,
)  # fmt: skip


def run(argv: list[str]) -> Outcome:
    """Play the steps, up to the one named in `argv` or all."""
    last = argv[0] if argv else STEPS[-1].__name__
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-tour-") as directory,
        Stage(pathlib.Path(directory), SENTENCES, loops=("gamma",), timers=TIMERS) as stage,
    ):
        tour = Tour(stage)
        began = tour.clock.now()
        failed = play(tour, last)
        tour.figures["tour_s"] = tour.clock.now() - began
    figures = {name: round(value, 3) for name, value in tour.figures.items()}
    return Outcome("tour", passed=not failed, took_effect=tour.took_effect, figures=figures)


def play(tour: Tour, last: str) -> str:
    """The steps up to `last`, each said when it holds. Returns what failed, or nothing."""
    for step in STEPS:
        began = tour.clock.now()
        try:
            step(tour)
        except (AssertionError, openai.OpenAIError) as error:
            print(f"FAIL {step.__name__}: {error}\n{tour.stage.processes.last_words()}", file=sys.stderr)
            return step.__name__
        print(f"ok   {step.__name__}  {tour.clock.now() - began:.1f} s", file=sys.stderr)
        if step.__name__ == last:
            break
    return ""
