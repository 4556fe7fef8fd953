"""Cards through the true NVML binding, against a shared library of ours where there is no GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

READ = """
import dataclasses, json, sys
from llmgw.agent.gpus import Gpus
gpus = Gpus()
ours, asked = ([int(pid) for pid in words.split(",") if pid] for words in sys.argv[1:3])
cards, of = gpus.read(ours), sys.argv[3].split()
held = gpus.held(asked, of)
print(json.dumps([cards if cards is None else [dataclasses.asdict(card) for card in cards], held]))
gpus.close()
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
    library: pathlib.Path, words: str, ours: str = "", asked: str = "", cards_of: str = ""
) -> tuple[Any, str]:
    """What a process sees that loads NVML from `library`."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": words}
    done = subprocess.run(
        [sys.executable, "-c", READ, ours, asked, cards_of],
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    cards, held = json.loads(done.stdout)
    return cards, held


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


def test_a_machine_without_nvml_knows_no_cards(tmp_path: pathlib.Path) -> None:
    """Not known is None, never an empty list: nothing is concluded from it."""
    (tmp_path / "libnvidia-ml.so.1").write_text("a driver that was half removed")
    assert read(tmp_path, "", asked="1") == (None, "")
