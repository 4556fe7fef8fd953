"""Cards through the true NVML binding, against a shared library of ours where there is no GPU."""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from llmgw.agent import marks
from llmgw.agent.core import AgentState
from llmgw.agent.gpus import Gpus, NvmlTimers
from llmgw.errors import Failed
from llmgw.fleet.inventory import Room
from llmgw.fleet.node import Gpu, Holder, NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.kit.clock import SystemClock
from llmgw.wire import messages as wire
from tests.agent.house import program, until
from tests.agent.making import assign, spec, start, stop
from tests.agent.test_connection import Control
from tests.support.ports import free_block
from tests.support.processes import Processes
from tests.transport.harness import listening

READ = """
import asyncio, dataclasses, json, sys
from llmgw.agent.gpus import Gpus, NvmlTimers
from llmgw.kit.clock import SystemClock
async def story():
    gpus = Gpus(SystemClock(), NvmlTimers(), lambda: None)
    await gpus.look()
    ours, asked = ([int(pid) for pid in words.split(",") if pid] for words in sys.argv[1:3])
    cards, of = gpus.read(ours), sys.argv[3].split()
    held = await gpus.held(asked, of)
    print(json.dumps([cards if cards is None else [dataclasses.asdict(card) for card in cards], held]))
    gpus.close()
asyncio.run(story())
"""

HANG = """
import asyncio, json, pathlib, sys, threading, time
from llmgw.agent.gpus import Gpus, NvmlTimers
from llmgw.kit.clock import SystemClock
flag, ticks, changes = pathlib.Path(sys.argv[1]), [], []
async def tick():
    while True:
        ticks.append(threading.active_count())
        await asyncio.sleep(0.01)
def seen(gpus):
    return [[card.uuid, card.healthy, card.said] for card in gpus.read(()) or ()]
async def held(gpus, *asked):
    return await gpus.held(*asked)
async def story():
    gpus = Gpus(SystemClock(), NvmlTimers(within=0.2), lambda: changes.append(gpus.silence))
    ticking = asyncio.create_task(tick())
    told = {"started": await gpus.look()}
    if not flag.exists():
        told["before"] = seen(gpus)
        flag.touch()
        ticks.clear()
    told["during"] = await asyncio.gather(*(held(gpus, (4711,), ("GPU-aaaa",)) for _ in range(20)))
    told["unknown"], told["cpu"] = await held(gpus, (4711,), None), await held(gpus, (4711,), ())
    told["ticks"], told["threads"], told["cards"] = len(ticks), max(ticks), seen(gpus)
    while "400ms" not in gpus.silence:
        await asyncio.sleep(0.01)
    told["later"] = gpus.silence
    flag.unlink()
    while gpus.silence:
        await asyncio.sleep(0.01)
    told["again"], told["after"] = await held(gpus, (4711,), ("GPU-aaaa",)), seen(gpus)
    told["changes"] = changes
    ticking.cancel()
    flag.touch()  # and an end while it hangs, once more, is an end
    hanging = asyncio.create_task(gpus.look())
    await asyncio.sleep(0.05)
    print(json.dumps(told), flush=True)
    gpus.close()
asyncio.run(story())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with our own libnvidia-ml.so.1, built by this machine's compiler."""
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed: cc"
    directory = tmp_path_factory.mktemp("nvml")
    source = pathlib.Path(__file__).with_name("nvml.c")
    built = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(source)], check=True)
    return directory


def read(
    library: pathlib.Path | None, words: str, ours: str = "", asked: str = "", cards_of: str = ""
) -> tuple[Any, str]:
    """What a process sees that loads NVML from `library`; None = the one of this machine, if it has one."""
    env = {**os.environ, "FAKE_NVML": words, **({"LD_LIBRARY_PATH": str(library)} if library else {})}
    cards, held = told_by(READ, ours, asked, cards_of, env=env)
    return cards, held


def told_by(program: str, *arguments: str, env: Mapping[str, str]) -> Any:
    """What a program of ours prints, as JSON. It has to end by itself."""
    argv = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(argv, env=env, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cards_by_uuid_with_their_memory(library: pathlib.Path) -> None:
    """Each card once, by the identity that CUDA takes."""
    cards, _ = read(library, "")
    assert [(card["uuid"], card["name"], card["memory_total"] >> 30) for card in cards] == [
        ("GPU-aaaa", "Fake H100", 80),
        ("GPU-bbbb", "Fake H100", 80),
    ]
    assert [card["memory_used"] >> 20 for card in cards] == [512, 0]


def test_memory_of_strangers_is_foreign_and_ours_is_not(library: pathlib.Path) -> None:
    """A process without our mark takes from what the card offers; our own is booked by its shard."""
    cards, _ = read(library, "pid=4711")
    assert [card["foreign"] >> 20 for card in cards] == [512, 0]
    cards, _ = read(library, "pid=4711", ours="4711")
    assert [card["foreign"] for card in cards] == [0, 0]


@pytest.mark.parametrize(
    ("words", "ours", "foreign"),
    [
        ("", "", 0),  # its driver's reserve is nobody's
        ("ancient", "", 0),
        ("leak0=40960", "", 40960),
        ("pid=4711@0:1024 leak0=40960", "", 41984),
        ("pid=4711@0:40960", "4711", 0),
        ("pid=4711@0:40960 leak0=30720", "4711", 30720),
        ("pid=4711@0:40960 pid=4712@0:2048 leak0=1024", "4711", 3072),
        ("pid=4711@0:40960 leak0=100", "4711", 0),  # what a context costs its driver
        ("draw=5000@0:300", "", 300),
        ("draw=5000@0:300", "5000", 0),
        ("pid=4711@0:? leak0=4096", "4711", 0),  # all of it may be ours
        ("blind0 leak0=40960", "", 40960),
        ("mute0 leak0=40960", "", 40960),
        ("leak0=90000", "", 80 * 1024),
    ],
)
def test_what_is_in_use_and_not_ours_is_foreign(
    library: pathlib.Path, words: str, ours: str, foreign: int
) -> None:
    """Whether or not the driver charges a process that it lists: another namespace's, a leak. Ours is subtracted once."""
    assert read(library, words, ours=ours)[0][0]["foreign"] >> 20 == foreign


def test_an_idle_card_takes_whatever_a_profile_asks_of_it(library: pathlib.Path) -> None:
    """Half a GiB is its driver's own: an engine that is given 99.9 % of a card finds a place."""
    for words in ("", "ancient"):
        cards = tuple(Gpu(**{**card, "holders": ()}) for card in read(library, words)[0])
        room = Room(NodeInfo("n0", "n0", gpus=cards))
        assert len(room.free_gpus()) == 2
        assert all(card.memory_total - card.foreign >= card.memory_total * 0.999 for card in cards)


def test_strangers_are_told_by_pid_name_and_memory(library: pathlib.Path) -> None:
    """Those with most of it, and what nobody is charged for; of ours none."""
    with sleeping() as stranger:
        words = f"pid={stranger}@0:3174 pid=4711@0:1024 leak0=2048"
        card = Gpu(**read_card(library, words, ours="4711"))
        assert (card.foreign >> 20, card.holders) == (
            3174 + 2048,
            (Holder(stranger, 3174 << 20, "sleep", True),),
        )
        assert card.strangers == (
            f"3.1 GiB held by pid {stranger} (sleep), 2 GiB held by others, not llmgw's"
        )
    many = " ".join(f"pid={4000 + n}@1:{200 + n}" for n in range(12))
    holders = Gpu(**read_card(library, many, number=1)).holders
    assert [holder.pid for holder in holders] == [4011 - n for n in range(8)]


@pytest.mark.parametrize(
    ("words", "bars"),
    [
        ("pid={}@0:3174", True),
        ("pid={}@0:300", False),
        ("draw={}@0:2048", False),
        ("pid={}@0:600 pid=4711@0:600", True),
        ("pid={}@0:? leak0=4096", True),
        ("pid={}@0:?", False),
    ],
)
def test_a_stranger_that_computes_bars_its_card_and_one_that_draws_does_not(
    library: pathlib.Path, words: str, *, bars: bool
) -> None:
    """A desktop and a monitor's context are only subtracted; what has a gibibyte of it may want all the rest."""
    with sleeping() as stranger:
        card = Gpu(**read_card(library, words.format(stranger)))
        assert [holder.bars for holder in card.holders if holder.pid == stranger] == [bars]
        (told,) = AgentState("n0").inventory((card,)) or ()
        assert (told.healthy, told.said) == (not bars, card.strangers if bars else "")


@pytest.mark.parametrize(
    "argv",
    [
        ("/opt/llama-server", "-c", "{}"),
        ("python3", "-m", "vllm.serve", "model"),
        ("sglang::scheduler_TP0", "-c", "{}"),
    ],
)
def test_an_engine_of_somebody_elses_bars_its_card_from_the_start(
    library: pathlib.Path, tmp_path: pathlib.Path, argv: Sequence[str]
) -> None:
    """It has little more than a context yet, and will have all of it."""
    code = "import time; print(flush=True); time.sleep(600)"
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "serve.py").write_text(code)
    called = [word.format(code) for word in argv]
    with subprocess.Popen(called, executable=sys.executable, stdout=subprocess.PIPE, cwd=tmp_path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (holder,) = Gpu(**read_card(library, f"pid={other.pid}@0:300")).holders
        assert holder.bars
        other.kill()


@contextlib.contextmanager
def sleeping() -> Iterator[int]:
    """A live process that is nobody's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def read_card(library: pathlib.Path, words: str, *, ours: str = "", number: int = 0) -> dict[str, Any]:
    """One card as a process sees it, with its holders as they are."""
    card = read(library, words, ours=ours)[0][number]
    return {**card, "holders": tuple(Holder(**holder) for holder in card["holders"])}


def test_a_driver_that_does_not_say_who_computes_verifies_nothing(library: pathlib.Path) -> None:
    """Not known is not nobody: memory may still be charged. A driver that never says it holds no shard for ever."""
    said = "cannot verify that the memory of GPU 0 is free: Timeout"
    assert read(library, "mute0", asked="4711", cards_of="GPU-aaaa")[1] == said
    assert read(library, "mute0 pid=4711@1", asked="4711", cards_of="GPU-bbbb")[1].startswith("GPU 1 still")
    assert read(library, "mute0", asked="4711", cards_of="GPU-bbbb")[1] == ""
    assert read(library, "blind0", asked="4711", cards_of="GPU-aaaa")[1] == ""


def test_one_dead_card_is_one_bad_card(library: pathlib.Path) -> None:
    """The others are read; the bad one says why."""
    good, bad = read(library, "bad1")[0]
    assert (good["uuid"], good["healthy"]) == ("GPU-aaaa", True)
    assert (bad["healthy"], bad["said"]) == (False, "card 1: GPU is lost")


def test_memory_of_a_dead_process_is_said_to_be_held(library: pathlib.Path) -> None:
    """A sweep asks for the pids it has ended: a card that still charges one is not free."""
    held = read(library, "pid=4711", asked="4711,4712")[1]
    assert held == "GPU 0 still charges 512 MiB to pid 4711, which has ended"
    assert read(library, "pid=4711", asked="4712")[1] == ""


def test_the_dead_on_a_shards_own_card_hold_it_by_whatever_pid(library: pathlib.Path) -> None:
    """A tree that died at once left no pid to ask for: its cards tell. Who lives there is a stranger."""
    dead = subprocess.Popen(["/bin/true"])
    dead.wait()
    held = read(library, f"pid={dead.pid}", cards_of="GPU-aaaa")[1]
    assert held == f"GPU 0 still charges 512 MiB to pid {dead.pid}, which has ended"
    assert read(library, f"pid={dead.pid}", cards_of="GPU-bbbb")[1] == ""
    assert read(library, f"pid={os.getpid()}", cards_of="GPU-aaaa")[1] == ""


@pytest.mark.parametrize("word", ["bad0", "lost0"])
def test_a_lost_card_hides_no_other(library: pathlib.Path, word: str) -> None:
    """Gone from the list or off the bus: the others are read, and what they charge the dead for is seen."""
    lost, good = read(library, f"{word} pid=4711@1")[0]
    assert (lost["healthy"], lost["said"]) == (False, "card 0: GPU is lost")
    assert (good["uuid"], good["healthy"], good["foreign"] >> 20) == ("GPU-bbbb", True, 512)
    held = read(library, f"{word} pid=4711@1", asked="4711")[1]
    assert held == "GPU 1 still charges 512 MiB to pid 4711, which has ended"


def test_cards_keep_their_identity_when_the_driver_counts_anew(library: pathlib.Path) -> None:
    """After a reboot card 3 may be card 0: what is known of a card goes by its UUID."""
    words = "cards=4 pid=4711@3:1000"
    before, after = read(library, words)[0], read(library, f"swap {words}")[0]
    assert [card["uuid"] for card in after] == [card["uuid"] for card in reversed(before)]
    assert {card["uuid"]: card for card in before} == {card["uuid"]: card for card in after}
    assert {card["uuid"]: card["foreign"] >> 20 for card in after if card["foreign"]} == {"GPU-dddd": 1000}


def test_the_slices_of_a_card_are_cards_of_their_own_type(library: pathlib.Path) -> None:
    """A cut card is not offered whole; the slices that were made are, each with its memory and its strangers."""
    cards = read(library, "mig0 pid=4711@0.2:2048")[0]
    assert [(card["uuid"], card["name"], card["memory_total"] >> 30) for card in cards] == [
        ("MIG-aaaa-0", "Fake H100 MIG 1g.10gb", 10),
        ("MIG-aaaa-2", "Fake H100 MIG 1g.10gb", 10),
        ("GPU-bbbb", "Fake H100", 80),
    ]
    assert [card["foreign"] >> 20 for card in cards] == [0, 2048, 0]
    held = read(library, "mig0 pid=4711@0.2:2048", asked="4711")[1]
    assert held == "GPU 0 still charges 2048 MiB to pid 4711, which has ended"


def test_many_strangers_are_added_up_and_ours_are_not_among_them(library: pathlib.Path) -> None:
    """Ten processes on one card, two of them ours; one whose memory the driver does not tell may have all the rest."""
    strangers = " ".join(f"pid={4000 + n}@1:100" for n in range(10))
    _, card = read(library, f"{strangers} pid=5000@1:?", ours="4000,4001")[0]
    assert card["foreign"] >> 20 == 800 + 1024
    assert card["memory_used"] >> 20 == 1000 + 1024
    _, card = read(library, strangers, ours="4000,4001")[0]
    assert card["foreign"] >> 20 == 800


def test_a_driver_without_cards_has_none(library: pathlib.Path) -> None:
    """It answers, and counts none: an empty list, which is not the same as not knowing."""
    assert read(library, "cards=0", asked="1") == ([], "")


@pytest.fixture(params=["stand-in", "this machine's"])
def driver(request: pytest.FixtureRequest) -> pathlib.Path | None:
    """A library of NVML: ours with eight cards, one of them cut; or, where there is a GPU, the true one."""
    if request.param == "stand-in":
        built: pathlib.Path = request.getfixturevalue("library")
        return built
    if read(None, "")[0] is None:
        pytest.skip("this machine has no NVML")
    return None


def test_what_holds_of_every_driver(driver: pathlib.Path | None) -> None:
    """Told twice the same; each card once, with no more used than it has, and strangers no more than that."""
    words = f"cards=8 mig3 pid={os.getpid()}@1 pid=1@2"
    (cards, held), (again, _) = (read(driver, words, asked=str(2**22 + 1)) for _ in range(2))
    assert held == ""
    assert cards
    uuids = [card["uuid"] for card in cards]
    assert uuids == [card["uuid"] for card in again]
    assert len(set(uuids)) == len(uuids)
    for card in cards:
        if card["healthy"]:
            assert card["uuid"].startswith(("GPU-", "MIG-"))
            assert card["name"]
            assert card["memory_total"] > 1 << 28
            assert 0 <= card["memory_used"] <= card["memory_total"]
            assert 0 <= card["foreign"] <= card["memory_total"]
        else:
            assert card["said"]


def test_a_machine_without_nvml_knows_no_cards(tmp_path: pathlib.Path) -> None:
    """Not known is None, never an empty list: nothing is concluded from it."""
    (tmp_path / "libnvidia-ml.so.1").write_text("a driver that was half removed")
    assert read(tmp_path, "", asked="1") == (None, "")


@pytest.mark.parametrize(
    ("word", "uuid", "name", "said"),
    [
        ("garbled0", "GPU-aaaa", "Fake \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} H100", ""),
        ("nameless0", "card-0", "unknown", "card 0: its UUID 'GPU-\N{REPLACEMENT CHARACTER}' cannot be used"),
        ("rude bad0", "card-0", "unknown", "card 0: GPU \N{REPLACEMENT CHARACTER} lost"),
        (
            "huge0",
            "card-0",
            "unknown",
            "card 0: it says that 18446744.1 TB of 18446744.1 TB of memory are used, which no card has",
        ),
    ],
)
def test_whatever_bytes_a_driver_says_are_data(
    library: pathlib.Path, word: str, uuid: str, name: str, said: str
) -> None:
    """Words are replaced as far as they are none; a card that cannot be told apart is that card's fault alone."""
    odd, good = read(library, f"{word} pid=4711@1")[0]
    assert (odd["uuid"], odd["name"], odd["healthy"], odd["said"]) == (uuid, name, not said, said)
    assert (good["uuid"], good["healthy"], good["foreign"] >> 20) == ("GPU-bbbb", True, 512)
    held = read(library, f"{word} pid=4711@1", asked="4711")[1]
    assert held == "GPU 1 still charges 512 MiB to pid 4711, which has ended"


@pytest.mark.parametrize("word", ["hang", "stuck"])
def test_a_driver_that_hangs_holds_up_nobody(
    library: pathlib.Path, tmp_path: pathlib.Path, word: str
) -> None:
    """One thread waits for it, everything else goes on; no memory is taken for free; once it answers all is as before."""
    flag = tmp_path / "flag"
    if word == "stuck":
        flag.touch()
    env = {**os.environ, "FAKE_NVML": f"{word}={flag}", "LD_LIBRARY_PATH": str(library)}
    told = told_by(HANG, str(flag), env=env)
    well = [["GPU-aaaa", True, ""], ["GPU-bbbb", True, ""]]
    said = "NVML has not answered for 200ms"
    assert told["started"] == (word == "hang")
    assert told.get("before", well) == well
    assert set(told["during"]) == {f"cannot verify that the memory of its cards is free: {said}"}
    assert (told["unknown"], told["cpu"]) == (told["during"][0], "")
    assert told["cards"] == ([[uuid, False, said] for uuid, *_ in well] if word == "hang" else [])
    assert told["ticks"] > 10
    assert told["threads"] == 2
    assert told["later"] == "NVML has not answered for 400ms"
    assert (told["again"], told["after"]) == ("", well)
    assert told["changes"] == [said, ""]


class Plane(Control):
    """A control plane that says what its one agent has told it."""

    seq = 100

    async def order(self, command: wire.Command) -> None:
        """Send a command as the next in its sequence."""
        self.seq += 1
        numbered = command.model_copy(update={"seq": self.seq, "epoch": self.epoch})
        await self.channels[-1].send(wire.encode(numbered))

    @property
    def beats(self) -> int:
        """Heartbeats of the newest stream."""
        return self.kinds().count("heartbeat") if self.streams else 0

    def reports(self) -> list[wire.Report]:
        """Everything that was reported."""
        return [said for stream in self.streams for said in stream if isinstance(said, wire.Report)]

    def shard(self) -> ShardStatus | None:
        """The newest word of the only shard."""
        said = [status for report in self.reports() for status in report.statuses]
        return said[-1] if said else None

    def info(self) -> NodeInfo:
        """The newest word of the node."""
        (register, *_), *_ = self.streams
        assert isinstance(register, wire.Register)
        return next((report.info for report in reversed(self.reports()) if report.info), register.info)


def test_an_agent_whose_driver_hangs_goes_on(library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A shard that ends meanwhile keeps its card, the cards are withdrawn; heartbeats come, and one connection holds it all."""
    flag, ports = tmp_path / "hangs", free_block(40)
    env = {"FAKE_NVML": f"hang={flag}", "LD_LIBRARY_PATH": str(library)}
    options = (
        "--state-dir",
        str(tmp_path / "a"),
        "--ports",
        f"{ports.start}-{ports.start + 39}",
        "--metrics",
        "off",
    )
    timers = ("nvml.within=300ms", "sweep.patience=200ms", "sweep.slow_look=50ms", "health.look=20ms")
    engine = (
        "--engine",
        f"llamacpp={program(tmp_path)}",
        *(word for timer in timers for word in ("--timer", timer)),
    )

    def state() -> str:
        return shard.state if (shard := plane.shard()) is not None else ""

    async def story() -> None:
        async with listening(plane.serve) as (_, port):
            processes.llmgw("agent", "agent", "--control", f"127.0.0.1:{port}", *options, *engine, env=env)
            await until(lambda: plane.beats, "a heartbeat")
            assert [card.healthy for card in plane.info().gpus or ()] == [True, True]
            source = f"file://{tmp_path}/alpha.gguf"
            shard = spec(nodes=(plane.info().id,), port=ports.start, source=source, gpus=("GPU-aaaa",))
            await plane.order(assign(shard))
            await until(lambda: state() == "held", "held")
            await plane.order(start(shard))
            await until(lambda: state() == "ready", "ready")
            flag.touch()
            await plane.order(stop(shard, grace=0.1))
            await until(lambda: not all(card.healthy for card in plane.info().gpus or ()), "withdrawn")
            await until(lambda: "NVML" in getattr(plane.shard(), "reason", ""), "why it lingers")
            beats = plane.beats
            await until(lambda: plane.beats >= beats + 10, "heartbeats while it hangs")
            assert state() == "stopping"
            assert (plane.shard() or shard).reason.startswith(
                "cannot verify that the memory of its cards is free"
            )  # type: ignore[union-attr]
            assert {card.said[:21] for card in plane.info().gpus or ()} == {"NVML has not answered"}
            assert plane.info().warnings[0].startswith("cannot see its cards: NVML has not answered for ")
            flag.unlink()
            await until(lambda: state() == "gone", "gone")
            await until(lambda: all(card.healthy for card in plane.info().gpus or ()), "healthy again")
            assert plane.info().warnings == ()
            assert len(plane.streams) == 1

    (tmp_path / "alpha.gguf").touch()
    plane = Plane(heartbeat=0.1)
    try:
        with Processes(tmp_path) as processes:
            asyncio.run(story())
    finally:
        flag.unlink(missing_ok=True)
        for path in tmp_path.glob("a/node-id"):
            for mark in marks.scan(path.read_text()):
                os.kill(mark.pid, signal.SIGKILL)


def test_an_agent_tells_who_is_on_its_cards(library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The card of a stranger is withdrawn in its words, with the pid; nobody touches it."""

    async def story(pid: int, stranger: subprocess.Popen[bytes]) -> None:
        plane = Plane(heartbeat=0.1)
        async with listening(plane.serve) as (_, port):
            env = {"FAKE_NVML": f"pid={pid}@0:3174", "LD_LIBRARY_PATH": str(library)}
            options = ("--state-dir", str(tmp_path / "a"), "--metrics", "off")
            processes.llmgw("agent", "agent", "--control", f"127.0.0.1:{port}", *options, env=env)
            await until(lambda: plane.beats, "a heartbeat")
            barred, free = plane.info().gpus or ()
            holder = Holder(pid, 3174 << 20, "sleep", bars=True)
            assert (barred.holders, barred.foreign) == ((holder,), 3174 << 20)
            assert (barred.healthy, barred.said) == (
                False,
                f"3.1 GiB held by pid {pid} (sleep), not llmgw's",
            )
            assert (free.healthy, free.holders) == (True, ())
            assert stranger.poll() is None

    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            with Processes(tmp_path) as processes:
                asyncio.run(story(stranger.pid, stranger))
        finally:
            stranger.kill()


def test_an_agent_that_gets_no_thread_for_nvml_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes it does not start, in words: nothing of it runs yet."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        monkeypatch.setattr(threading.Thread, "start", refused)
        Gpus(SystemClock(), NvmlTimers(), lambda: None)

    with pytest.raises(Failed, match="no thread can be started"):
        asyncio.run(story())
