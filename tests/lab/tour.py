"""The whole story, by itself: `python -m tests.lab tour`.

A control plane, two agents and a gateway on loopback, real engines, a catalog in git, and clients that
never stop asking. Each step does one thing that operators do or that happens to them, and proves from
the outside (pids, start ticks, contents of answers, bytes served) that it took effect. The steps stand
in `STEPS`, in order; a step that fails ends the tour.
"""

import pathlib
import tempfile

from tests.lab.command import Outcome
from tests.support import engines, proc
from tests.support.clients import client, plain, streamed
from tests.support.processes import end_by_pid
from tests.support.stage import Stage
from tests.support.story import LongStream, Step, Story, must, play
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
    "backoff_reset": "1s",
    "stop_grace": "5s",
    "gateway_silent": "3s",
}


def start(tour: Story) -> None:
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


def validate(tour: Story) -> None:
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


def plan(tour: Story) -> None:
    """The plan names each action's node, reason, catalog line and bytes, in order, and changes nothing."""
    rows = tour.stage.json("plan", "catalog")["rows"]
    added = [row for row in rows if row["symbol"] == "+"]
    must({row["model"] for row in added} == set(SENTENCES), f"three models are added: {rows}")
    for row in added:
        must(row["nodes"] and row["said"] and row["place"], f"node, reason and place are named: {row}")
        must(row["fetch"] and not row["held"], f"the bytes to fetch are said: {row}")
    must(not tour.stage.engines(), "a plan starts nothing")
    tour.took_effect["plan"] = [
        f"{row['symbol']} {row['model']} on {row['nodes'][0]} {row['fetch']} bytes" for row in added
    ]


def fetch(tour: Story) -> None:
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


def chat(tour: Story) -> None:
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


def engine_dies(tour: Story) -> None:
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


def scale(tour: Story) -> None:
    """Bounds are raised: a second replica comes up on the other node, the first is not touched."""
    # The node where the engine died is avoided until the failure is forgiven.
    wait_for(lambda: tour.ready("alpha")[0]["age"] > 1.5, "the failure is forgiven")
    before = tour.pids("alpha")
    tour.stage.model("alpha", aliases=["default"], fallbacks=["beta"], scaling={"min": 2, "max": 2})
    tour.figures["scaled_s"] = tour.apply("alpha twice")
    rows, after = tour.ready("alpha"), tour.pids("alpha")
    must(len(rows) == 2 and len(after) == 2, f"there are two replicas: {rows}")
    must(before.items() <= after.items(), "the first replica runs on")
    must({row["nodes"][0] for row in rows} == set(NODES), f"siblings stand apart: {rows}")
    tour.took_effect["replicas"] = 2


def roll(tour: Story) -> None:
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


def agent_dies(tour: Story) -> None:
    """An agent is killed and started again: its engines answer all the time and are adopted as they are."""
    name = NODES[0]
    before = tour.pids()
    (port,) = [
        shard["port"] for row in tour.ready("alpha") for shard in row["shards"] if shard["node"] == name
    ]
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        tour.running[name].kill()
        known = clients.done
        wait_for(lambda: clients.done >= known + 20, "answers without the agent")
        must(engines.chat(port, "alpha") == SENTENCES["alpha"], "the engine itself answers")
        must(tour.pids() == before, "no engine ended with its agent")
        tour.running[name] = tour.stage.agent(name)
        adopted = wait_for(lambda: tour.adopted_on(name), "the engines are adopted", within=20.0)
        known = clients.done
        wait_for(lambda: clients.done >= known + 20, "answers after the adoption")
    must(tour.pids() == before, f"same pids, same start: {before} {tour.pids()}")
    must(not clients.failures, f"requests failed: {clients.failures[:3]}")
    tour.took_effect["adopted"] = adopted
    tour.figures["requests_without_agent"] = clients.done


def control_dies(tour: Story) -> None:
    """The control plane is killed: the gateway answers all the time; the next one knows every replica again."""
    before, rows = tour.pids(), tour.known()
    with tour.clients("alpha") as clients:
        wait_for(lambda: clients.done, "the first answer")
        tour.running["control"].kill()
        known = clients.done
        wait_for(lambda: clients.done >= known + 50, "answers without a control plane")
        must(tour.stage.cli("status").returncode == 69, "the control plane is really away")
        tour.running["control"] = tour.stage.control()
        wait_for(lambda: tour.known() == rows, "every replica is known again", within=20.0)
        wait_for(tour.settled, "nothing is outstanding", within=20.0)
    must(tour.pids() == before, f"no engine was started or stopped: {before} {tour.pids()}")
    must(not clients.failures, f"requests failed: {clients.failures[:3]}")
    tour.took_effect["replicas_known_again"] = len(rows)
    tour.figures["requests_without_control"] = clients.done


def remove(tour: Story) -> None:
    """A model is removed while a client streams from it: the stream ends whole, then the engine stops."""
    (pid,) = tour.pids("gamma")
    stream = LongStream(tour.stage.gateway_port, "gamma", 1500)
    stream.start()
    wait_for(lambda: stream.words, "the stream begins")
    tour.stage.remove("gamma")
    tour.figures["removed_s"] = tour.apply("without gamma")
    stream.join()
    must(stream.error == "" and stream.words == stream.length, f"{stream.words} words, {stream.error}")
    must(not proc.alive(pid) and not tour.pids("gamma"), "its engine has stopped")
    tour.took_effect["streamed_through_the_drain"] = stream.words


def collect(tour: Story) -> None:
    """`gc` lists the weights of the removed model; `--collect` removes exactly them, and no foreign file."""
    entries, kept = tour.stage.cached("gamma"), tour.stage.cached("alpha")
    strangers = [entries[0].parent / name for name in ("notes.txt", "f" * 64)]
    for stranger in strangers:
        stranger.write_text("an operator's own")
    listed = tour.stage.json("gc")
    names = [item["entry"]["cache_name"] for item in listed["items"]]
    must(names == [entry.name for entry in entries], f"gamma is listed for each node that has it: {listed}")
    must(all(entry.exists() for entry in entries), "a listing removes nothing")
    done = tour.stage.cli("gc", "--collect", "--expect", listed["id"])
    must(done.returncode == 0, f"gc ended with {done.returncode}: {done.stdout}{done.stderr}")
    must(not any(entry.exists() for entry in entries), "the weights of gamma are gone")
    must(tour.stage.cached("alpha") == kept, "the weights of alpha stay")
    must(all(stranger.exists() for stranger in strangers), "foreign files stay")
    tour.took_effect["collected"] = done.stdout.strip().splitlines()[-1]


def stop(tour: Story) -> None:
    """The last models leave, every process ends on SIGTERM, and nothing with our mark is left."""
    tour.stage.remove("alpha")
    tour.stage.remove("beta")
    tour.apply("nothing any more", "--allow-empty", "--allow-mass-stop", "3")
    must(not tour.pids(), f"every engine has stopped: {tour.pids()}")
    codes = {name: process.stop() for name, process in tour.running.items()}
    must(not any(codes.values()), f"every process ends well: {codes}")
    left = [seen.command for seen in proc.everyone() if str(tour.stage.directory) in seen.command]
    must(not left and not tour.pids(), f"nothing is left: {left}")
    tour.took_effect["ended"] = sorted(codes)


STEPS: tuple[Step, ...] = (
    start, validate, plan, fetch, chat, engine_dies, scale, roll, agent_dies, control_dies, remove, collect, stop,
)  # fmt: skip


def run(argv: list[str]) -> Outcome:
    """Play the steps, up to the one named in `argv` or all."""
    last = argv[0] if argv else STEPS[-1].__name__
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-tour-") as directory,
        Stage(pathlib.Path(directory), SENTENCES, loops=("gamma",), timers=TIMERS) as stage,
    ):
        tour = Story(stage)
        began = tour.clock.now()
        failed = play(tour, STEPS, last)
        tour.figures["tour_s"] = tour.clock.now() - began
    figures = {name: round(value, 3) for name, value in tour.figures.items()}
    return Outcome(not failed, tour.took_effect, figures, said=f"failed: {failed}" if failed else "")
