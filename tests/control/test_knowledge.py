"""What models say of themselves: read once, within a bound, and believed only where it is known."""

import asyncio
import dataclasses
import errno
import pathlib
from collections.abc import Awaitable, Callable

import pytest

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.model import Catalog
from llmgw.catalog.sources import Source
from llmgw.control.adoption import Proposal
from llmgw.control.expecting import Wish
from llmgw.control.holding import Rules
from llmgw.control.knowledge import Bounds, Knowledge
from llmgw.control.trees import Directory
from llmgw.errors import CatalogInvalid
from llmgw.fleet import events
from llmgw.fleet.node import Gpu, NodeInfo
from llmgw.kit.clock import SystemClock
from llmgw.transport.ranges import CannotRead
from tests.catalog.samples import MODEL, PROFILE, catalog
from tests.control.following import Followed, write
from tests.control.plane import Clock, Plane
from tests.support import models

FIVE = PROFILE.replace("gpus_per_node: 4", "gpus_per_node: 5")
QWEN = facts_of(models.QWEN3_14B)


class Reader:
    """Reads what it is told, and counts."""

    def __init__(self, answer: ModelFacts | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, source: Source) -> ModelFacts:
        self.asked.append(source.canonical)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def known(
    read: Callable[[Source], Awaitable[ModelFacts]], clock: Clock, *of: Catalog, **bounds: float
) -> Knowledge:
    """Knowledge after learning each of these catalogs."""
    knowledge = Knowledge(read, clock, Bounds(**bounds))  # type: ignore[arg-type]
    for each in of:
        asyncio.run(knowledge.learn(each, None))
    return knowledge


def test_what_cannot_be_looked_into_is_unknown() -> None:
    """Whether its source says no or this machine has no thread: nobody who follows a catalog ends by it."""
    for refusal in (CannotRead("no"), OSError(errno.EAGAIN, "no thread for it")):
        reader = Reader(refusal)
        assert known(reader, Clock(), catalog(MODEL, PROFILE)).known == {}
        assert len(reader.asked) == 1


def plane(root: pathlib.Path, read: Callable[[Source], Awaitable[ModelFacts]]) -> Plane:
    """A control plane that looks into models with `read`."""
    clock = Clock()
    return Plane(root, clock=clock, knowledge=Knowledge(read, clock))


def test_a_plan_of_what_its_engine_would_refuse_is_refused(tmp_path: pathlib.Path) -> None:
    """The refusal is a catalog error at the profile's line: 422, which the CLI turns into exit 3."""
    made = plane(tmp_path, Reader(QWEN))
    status, said = made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "p.yaml": FIVE}})
    assert status == 422
    assert "E503" in said["error"]["said"]
    assert "p.yaml:4:1" in said["error"]["said"]
    assert "151936 padded to 151936, is not divisible by 5" in said["error"]["said"]
    status, _ = made.call("POST", "/v1/apply", {"files": {"m.yaml": MODEL, "p.yaml": FIVE}})
    assert (status, made.adoption.number) == (422, 0)
    assert made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "p.yaml": PROFILE}})[0] == 200


def test_a_plan_says_the_bytes_that_its_source_told(tmp_path: pathlib.Path) -> None:
    """Before anything is fetched the size is known, and placement reserves it."""
    made = plane(tmp_path, Reader(dataclasses.replace(QWEN, download=29_500_000_000)))
    cards = tuple(Gpu(f"g{i}", "H100", 80 << 30) for i in range(4))
    made.hears(events.Registered(NodeInfo("n0", "n0", gpus=cards)))
    status, said = made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "p.yaml": PROFILE}})
    assert status == 200
    assert [row["fetch"] for row in said["rows"]] == [29_500_000_000]


def test_a_plan_says_why_its_source_could_not_be_looked_into(tmp_path: pathlib.Path) -> None:
    """On the row, once it is asked and while that is believed: what answers 404 will not be fetched either."""
    reader = Reader(CannotRead("huggingface.co answered 404"))
    made = plane(tmp_path, reader)
    cards = tuple(Gpu(f"g{i}", "H100", 80 << 30) for i in range(4))

    def row() -> str:
        made.hears(events.Registered(NodeInfo("n0", "n0", gpus=cards)))
        (found,) = made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "p.yaml": PROFILE}})[1]["rows"]
        return str(found["unread"])

    assert [row(), row()] == ["huggingface.co answered 404"] * 2
    made.clock.at += 301
    reader.answer = CannotRead("huggingface.co: connection refused")
    assert row() == "huggingface.co: connection refused"
    made.clock.at += 301
    reader.answer = QWEN
    assert row() == ""


def test_a_source_that_says_nothing_in_time_is_told_as_that() -> None:
    """After the patience of one plan."""

    async def silent(_: Source) -> ModelFacts:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    knowledge = known(silent, Clock(), catalog(MODEL, PROFILE), patience=0.01)
    assert list(knowledge.unread.values()) == ["nothing came within 0.01 s"]


def test_a_standing_model_on_other_cards_is_looked_at_again(tmp_path: pathlib.Path) -> None:
    """What runs on four is not proven on five."""
    made = plane(tmp_path, Reader(QWEN))
    assert made.call("POST", "/v1/apply", {"files": {"m.yaml": MODEL, "p.yaml": PROFILE}})[0] == 200
    assert made.call("POST", "/v1/apply", {"files": {"m.yaml": MODEL, "p.yaml": FIVE}})[0] == 422
    assert made.adoption.number == 1


def test_what_cannot_be_read_excludes_nothing(tmp_path: pathlib.Path) -> None:
    """A hub that is away does not stand between an operator and a plan."""
    made = plane(tmp_path, Reader(CannotRead("the hub is away")))
    assert made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "p.yaml": FIVE}})[0] == 200


def test_what_stands_is_proven_by_running(tmp_path: pathlib.Path) -> None:
    """A rule that is newer than a deployment does not lock its operator out of everything else."""
    reader = Reader(CannotRead("away"))
    made = plane(tmp_path, reader)
    assert made.call("POST", "/v1/apply", {"files": {"m.yaml": MODEL, "p.yaml": FIVE}})[0] == 200
    reader.answer = QWEN
    made.clock.at += 1000
    more = MODEL.replace("name: llama", "name: other").replace("@6f6073b", "@1234567")
    status, said = made.call("POST", "/v1/plan", {"files": {"m.yaml": MODEL, "n.yaml": more, "p.yaml": FIVE}})
    assert status == 422
    assert "other" in said["error"]["said"]
    assert "cannot run llama like" not in said["error"]["said"]


def test_what_is_followed_is_looked_into_too(tmp_path: pathlib.Path) -> None:
    """A commit that its engine would refuse is held, with its place; what stood goes on standing."""
    made = plane(tmp_path / "state", Reader(QWEN))
    followed = Followed(
        tmp_path / "state", Directory(tmp_path / "catalog", SystemClock()), Rules("files", "auto"), plane=made
    )
    write(tmp_path / "catalog", {"m.yaml": MODEL, "p.yaml": FIVE})
    followed.settles()
    assert followed.number == 0
    assert "p.yaml:4:1: E503" in "".join(followed.watch.report()["hold"]["details"])
    write(tmp_path / "catalog", {"m.yaml": MODEL, "p.yaml": PROFILE})
    followed.settles()
    assert followed.number == 1


def test_a_source_is_read_once() -> None:
    """Two models of one source, two plans: one look."""
    reader, twice = Reader(QWEN), catalog(MODEL, MODEL.replace("name: llama", "name: other"), PROFILE)
    assert known(reader, Clock(), twice, twice).known
    assert len(reader.asked) == 1


def test_a_failure_is_believed_for_a_while() -> None:
    """The next plan does not wait for the same hub again; a later one tries."""
    reader, clock = Reader(CannotRead("away")), Clock()
    knowledge = known(reader, clock, catalog(MODEL, PROFILE), catalog(MODEL, PROFILE), again=60.0)
    assert len(reader.asked) == 1
    clock.at += 61
    asyncio.run(knowledge.learn(catalog(MODEL, PROFILE), None))
    assert len(reader.asked) == 2


def test_a_source_that_never_answers_costs_no_more_than_the_patience() -> None:
    """And the plan after it does not wait at all."""

    async def hangs(_: Source) -> ModelFacts:
        await asyncio.Event().wait()
        raise AssertionError

    clock = SystemClock()
    began = clock.now()
    knowledge = Knowledge(hangs, clock, Bounds(patience=0.1))
    for _ in range(20):
        asyncio.run(knowledge.learn(catalog(MODEL, PROFILE), None))
    assert clock.now() - began < 1.0
    assert knowledge.problems(catalog(MODEL, PROFILE), None) == []


def test_memory_is_bounded() -> None:
    """The oldest is forgotten first."""
    named = [MODEL.replace("name: llama", f"name: m{n}").replace("@6f6073b", f"@{n:07}") for n in range(9)]
    knowledge = known(Reader(QWEN), Clock(), *(catalog(text, PROFILE) for text in named), most=4)
    assert len(knowledge.known) == 4


def test_files_on_nodes_are_not_looked_for_here() -> None:
    """A path means another file on another machine."""
    reader = Reader(QWEN)
    on_node = MODEL.replace("hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b", "file:///models/x")
    known(reader, Clock(), catalog(on_node, PROFILE))
    assert reader.asked == []


def test_a_failed_look_leaves_apply_whole(tmp_path: pathlib.Path) -> None:
    """What was refused is refused before anything is kept."""
    made = plane(tmp_path, Reader(QWEN))
    with pytest.raises(CatalogInvalid):
        asyncio.run(made.adoption.apply(Proposal({"m.yaml": MODEL, "p.yaml": FIVE}), Wish()))
    assert made.store.newest() is None


def test_many_failures_are_forgotten_at_once() -> None:
    """Forgetting tens of thousands one by one from the front held the loop for longer than the patience."""
    clock = SystemClock()
    knowledge = Knowledge(Reader(CannotRead("away")), clock, Bounds(most=4))
    began = clock.now()
    knowledge._remember_failures((f"m{n}" for n in range(50_000)), "no")
    assert list(knowledge._failed) == ["m49996", "m49997", "m49998", "m49999"]
    assert clock.now() - began < 1.0
