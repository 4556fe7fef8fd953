"""What earlier releases said is understood by this one, to the last field; what a later one says does no harm."""

import importlib.metadata
import json
import pathlib
from typing import Any

import pytest

from llmgw.catalog.sources import cache_name
from llmgw.control.translate import agent_event
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import seeded
from llmgw.planning.actions import Assign
from llmgw.wire import messages as wire
from llmgw.wire.session import Admit, Adopt, AgentSession, ControlSession, Deliver, Obey
from tests.planning.story import Story, a_catalog, a_model, a_profile
from tests.wire.record import DIRECTORY, SHARD

UP = sorted(DIRECTORY.glob("*/up/*.json"))
DOWN = sorted(DIRECTORY.glob("*/down/*.json"))
REGISTERS = [path for path in UP if path.stem.startswith("register")]
EPOCH = 1_767_225_600


def name(path: pathlib.Path) -> str:
    """`0.1.0/up/register`."""
    return "/".join((*path.parts[-3:-1], path.stem))


def within(recorded: Any, understood: Any) -> bool:
    """Whether everything that was recorded is found again in what was understood; newer fields may be beside it."""
    if isinstance(recorded, dict):
        return isinstance(understood, dict) and all(
            within(value, understood.get(key)) for key, value in recorded.items()
        )
    if isinstance(recorded, list):
        return len(recorded) == len(understood) and all(map(within, recorded, understood))
    return bool(recorded == understood)


def delivered(path: pathlib.Path) -> wire.Up:
    """The message as a control plane gets it: judged by its session and believed."""
    session = ControlSession(epoch=EPOCH, due=10.0)
    if not path.stem.startswith(("register", "subscribe")):
        agent = path.stem not in ("load", "leave")
        hello = path.with_stem("register" if agent else "subscribe").read_bytes()
        session, _ = session.received(hello)
        session, _ = session.admitted(1, 5.0)
    _, outputs = session.received(path.read_bytes())
    (output,) = outputs
    assert isinstance(output, Admit | Deliver), output
    return output.message


@pytest.mark.parametrize("path", UP, ids=name)
def test_every_field_of_what_was_said_is_understood(path: pathlib.Path) -> None:
    """Read, believed, and written again: no recorded value is lost on the way, unless nobody knew its key."""
    # They lie at every depth: one in a card once made a newer agent's registration an internal error.
    recorded = json.loads(path.read_bytes())
    understood = json.loads(wire.encode(delivered(path)))
    if "unknown-keys" in path.stem:
        assert "weather" in recorded
        recorded = json.loads(path.with_stem("register").read_bytes())
    assert within(recorded, understood)


@pytest.mark.parametrize("path", REGISTERS, ids=name)
def test_a_node_of_any_release_is_rebuilt_from_its_registration(path: pathlib.Path) -> None:
    """Its shard, spec and all, is in the fleet again, under the very name that its weights have on the disk."""
    event = agent_event("", delivered(path))
    assert isinstance(event, events.Registered)
    fleet = Fleet().apply(event, 5000.0)
    (shard,) = fleet.shards.values()
    assert (shard.spec, shard.state, shard.status.pid) == (SHARD, "ready", 4711)
    assert shard.since == 5000.0 - 3600.5
    (entry,) = json.loads(path.with_stem("register").read_bytes())["info"]["weights"]
    assert cache_name(shard.spec.source) == entry["cache_name"]


@pytest.mark.parametrize("path", REGISTERS, ids=name)
def test_what_a_node_did_not_say_excludes_it_nowhere(path: pathlib.Path) -> None:
    """Without engines, disk, cards or weights, or with keys nobody knows: a replica that needs none is placed there."""
    event = agent_event("", delivered(path))
    assert isinstance(event, events.Registered)
    needs = a_profile("cpu", gpus_per_node=0, engine="sglang" if event.info.engines is None else "vllm")
    story = Story(event.info, catalog=a_catalog(a_model(profiles=("cpu",)), profiles=(needs,)))
    assigned = [action for action in story.decides() if isinstance(action, Assign)]
    assert [action.spec.node for action in assigned] == [event.info.id]


def test_absent_is_not_empty() -> None:
    """A registration without a field reads as "not said", never as none."""
    for field in ("engines", "disk_free", "gpus", "weights"):
        (path,) = (path for path in REGISTERS if path.stem == f"register-without-{field}")
        message = delivered(path)
        assert isinstance(message, wire.Register)
        assert getattr(message.info, field) is None
        assert getattr(NodeInfo("n", "n"), field) is None


@pytest.mark.parametrize("path", DOWN, ids=name)
def test_an_order_of_any_release_is_obeyed(path: pathlib.Path) -> None:
    """A newer agent under an older control plane: every field of what it is told arrives."""
    recorded = json.loads(path.read_bytes())
    understood = json.loads(wire.encode(wire.decode_down(path.read_bytes())))
    assert within(recorded, understood)
    if "seq" not in recorded:
        return
    session, _ = AgentSession(epoch=1).opened(wire.Register(info=NodeInfo("n", "n")), 0.0, 10.0)
    welcome = wire.encode(wire.Registered(epoch=1))
    session, (adopt,) = session.received(1, welcome, 0.0, seeded(1))
    assert isinstance(adopt, Adopt)
    _, (obey,) = session.received(1, path.read_bytes(), 0.0, seeded(1))
    assert isinstance(obey, Obey)


def test_this_release_has_recordings_of_everything_it_can_say() -> None:
    """A kind of message without a recording would be nobody's test: run `python -m tests.wire.record`."""
    kinds = {cls.model_fields["kind"].default for cls in (*wire.Up.__args__, *wire.Down.__args__)}
    newest = DIRECTORY / importlib.metadata.version("llmgw")
    recorded = {json.loads(path.read_bytes())["kind"] for path in newest.glob("*/*.json")}
    assert recorded == kinds
