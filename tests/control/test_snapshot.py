"""The fleet as a file: nothing is lost on the way, and redacted it names nobody."""

import dataclasses
import json

import pytest

from llmgw.catalog.load import load_files
from llmgw.control import snapshot
from llmgw.control.adoption import command_line
from llmgw.errors import Failed
from llmgw.kit.chance import seeded
from llmgw.planning.asking import answer
from llmgw.planning.plan import Plan
from tests.support import recorded

NEXT = load_files({name: text.encode() for name, text in recorded.NEXT.items()})


def plan(found: snapshot.Snapshot) -> Plan:
    """The plan of the proposed catalog against it."""
    desired = dataclasses.replace(found.given.desired, catalog=NEXT)
    return answer(found.given, desired, lambda: seeded(1), command_line)


def standing(found: snapshot.Snapshot) -> snapshot.Snapshot:
    """With its catalog loaded, as the control plane has it."""
    catalog = load_files({name: text.encode() for name, text in found.files.items()})
    desired = dataclasses.replace(found.given.desired, catalog=catalog)
    return dataclasses.replace(found, given=dataclasses.replace(found.given, desired=desired))


def test_what_is_read_is_what_was_written() -> None:
    """Fleet, ledger, marks, timers and measurements are equal, so the plan is, to the last number."""
    made = recorded.recorded()
    read = snapshot.read(snapshot.dump(made), "f")
    for field in ("fleet", "ledger", "now", "timers", "known", "number"):
        assert getattr(read.given, field) == getattr(made.given, field)
    assert plan(read) == plan(standing(made))
    assert json.loads(snapshot.dump(made))["at"] == made.at.isoformat()


@pytest.mark.parametrize("named", ["node", "state", "vllm", "Ready"])
def test_redacted_it_names_nobody_and_gives_the_same_plan(named: str) -> None:
    """No machine, address, card, gateway or person; a machine may be called like a field, or like a state."""
    made = recorded.recorded()
    known = made.given.fleet.nodes["id-gpu-a1"]
    renamed = dataclasses.replace(known, info=dataclasses.replace(known.info, name=named))
    fleet = dataclasses.replace(made.given.fleet, nodes={**made.given.fleet.nodes, "id-gpu-a1": renamed})
    made = dataclasses.replace(made, given=dataclasses.replace(made.given, fleet=fleet))
    text = snapshot.dump(made, redact=True)
    document = json.loads(text)
    del document["files"]
    for word in ("id-gpu", "gpu-a2", "cpu-c1", "10.1.0", "card-", "ilker", "dana", "sam", "already in use"):
        assert word not in json.dumps(document)
    assert document["redacted"]
    read = snapshot.read(text, "f")
    assert {node.info.name for node in read.given.fleet.nodes.values()} == {
        f"node-000{i}" for i in range(1, 7)
    }
    assert plan(read).digest == plan(standing(made)).digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "cannot plan against f"),
        ("{", "cannot plan against f"),
        ('{"kind": "llmgw.plan"}', "it is no fleet export"),
        ('{"kind": "llmgw.fleet", "format_version": "2.0"}', "its format is 2.0"),
        ('{"kind": "llmgw.fleet", "format_version": "1.7"}', "at: field required"),
    ],
)
def test_what_is_no_export_is_said(text: str, said: str) -> None:
    """A newer minor version is read, a newer major one is not."""
    with pytest.raises(Failed, match="cannot plan") as caught:
        snapshot.read(text, "f")
    assert said in caught.value.said
