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
    library: pathlib.Path | None, words: str, ours: str = "", asked: str = "", cards_of: str = ""
) -> tuple[Any, str]:
    """What a process sees that loads NVML from `library`; None = the one of this machine, if it has one."""
    env = {**os.environ, "FAKE_NVML": words, **({"LD_LIBRARY_PATH": str(library)} if library else {})}
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
