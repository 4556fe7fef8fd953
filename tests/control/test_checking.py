"""`llmgw engine-check` through the control plane: what a node answers, and what it says where none does."""

import asyncio
import json
import pathlib
from collections.abc import Callable

import pytest

from llmgw.control.asking import Asking
from llmgw.control.checking import Checking
from llmgw.control.names import NoSuchName
from llmgw.errors import Failed
from llmgw.fleet import events
from llmgw.fleet.node import InstalledEngine, NodeInfo
from llmgw.planning.screen import node_rows
from llmgw.transport.http import Request
from llmgw.wire import messages
from tests.control.plane import Plane

UNSUPPORTED = "unsupported: this agent does not know 'check'"


def asked(tmp_path: pathlib.Path, node: str, answer: messages.Result | None) -> object:
    """What the API says after the node has answered so; None = it never does."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NodeInfo("id-1", "gpu-1")))
    sent: list[messages.Command] = []

    def send(_: str, make: Callable[[int, int], messages.Command]) -> bool:
        sent.append(make(3, 9))
        if answer is not None:
            asyncio.get_running_loop().call_soon(asking.answered, "id-1", answer)
        return True

    asking = Asking(send)
    route = Checking(plane.loop, asking, patience=0.05).routes["POST", "/v1/engine-check"]
    body = json.dumps({"node": node}).encode()
    response = asyncio.run(route(Request("POST", "/v1/engine-check", {}, {}, body)))  # type: ignore[arg-type]
    assert sent == [messages.Check(epoch=3, seq=9)]
    assert isinstance(response.body, bytes)
    return json.loads(response.body)


def test_the_nodes_answer_is_passed_on(tmp_path: pathlib.Path) -> None:
    """Asked by name, answered with every engine and what it said; keys of a newer agent do no harm."""
    row = {"name": "vllm", "path": "/opt/vllm", "works": True, "checked": "0.33.0", "newer": 1}
    found = asked(tmp_path, "gpu-1", messages.Result(seq=9, data={"engines": [row]}))
    expected = {"name": "vllm", "version": "", "path": "/opt/vllm", "works": True, "checked": "0.33.0"}
    assert found == {"node": "gpu-1", "engines": [expected]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (messages.Result(seq=9, ok=False, said=UNSUPPORTED), f"engines of gpu-1: {UNSUPPORTED}"),
        (messages.Result(seq=9, data={"engines": [{"works": "maybe"}]}), "its answer makes no sense: "),
        (None, "no answer within 0.05s"),
    ],
)
def test_no_answer_is_a_sentence(tmp_path: pathlib.Path, answer: messages.Result | None, said: str) -> None:
    """An agent of an older release, nonsense, silence: each names the node and why."""
    with pytest.raises(Failed) as failed:
        asked(tmp_path, "gpu-1", answer)
    assert said in failed.value.said


def test_a_node_that_is_not_there_is_not_asked(tmp_path: pathlib.Path) -> None:
    """The nearest name is told."""
    with pytest.raises(NoSuchName, match="no node has this name"):
        asked(tmp_path, "gpu-7", None)


def test_nodes_shows_what_a_check_found(tmp_path: pathlib.Path) -> None:
    """Three engines: one nobody checked, one that runs, one that does not."""
    plane = Plane(tmp_path)
    engines = (
        InstalledEngine("llamacpp", "0.1"),
        InstalledEngine("sglang", "", works=True, checked="0.5.23"),
        InstalledEngine("vllm", "0.33.0", works=False, checked="exit 1"),
    )
    plane.hears(events.Registered(NodeInfo("id-1", "gpu-1", engines=engines)))
    (row,) = node_rows(plane.loop.view())
    assert row.engines == ("llamacpp 0.1", "sglang 0.5.23 (runs)", "vllm 0.33.0 (does not run)")
