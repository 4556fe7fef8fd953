"""The clocks of agents and gateways beside ours: asked at once, compared, and never guessed."""

import asyncio
import datetime
import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from llmgw.cli.exits import Exit
from llmgw.control.asking import Asking
from llmgw.control.clocks import Clocks
from llmgw.control.peers import Peer
from llmgw.kit.clock import SystemClock
from llmgw.transport.http import Request
from llmgw.wire import messages
from tests.support.stage import Stage
from tests.support.waiting import wait_for

SHIM = pathlib.Path(__file__).parents[1] / "support" / "clock.c"
NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


class Slow:
    """A clock that goes on by a second each time somebody looks at it, and shows the same wall time."""

    def __init__(self) -> None:
        self._at = 0.0

    def now(self) -> float:
        self._at += 1.0
        return self._at

    def wall(self) -> datetime.datetime:
        return NOW


def compared(*answers: messages.Result | None) -> list[dict[str, Any]]:
    """The rows of as many agents, each of which answers so; None = it never does."""
    told = dict(enumerate(answers))

    def send(node: str, make: Callable[[int, int], messages.Command]) -> bool:
        command = make(3, int(node))
        assert isinstance(command, messages.Clock)
        if (answer := told[int(node)]) is not None:
            asyncio.get_running_loop().call_soon(asking.answered, node, answer)
        return True

    asking = Asking(send)
    peers = [Peer("agent", str(number), f"n{number}", "", "", 1) for number in told]
    clocks = Clocks(peers, asking, Asking(lambda *_: False), Slow(), patience=0.05)  # type: ignore[arg-type]
    response = asyncio.run(clocks.routes["GET", "/v1/clocks"](Request("GET", "/v1/clocks", {}, {}, b"")))  # type: ignore[arg-type]
    assert isinstance(response.body, bytes)
    rows: list[dict[str, Any]] = json.loads(response.body)
    return rows


def test_a_reading_is_compared_with_the_middle_of_its_way() -> None:
    """The answer took a second: ours was half a second earlier, and that much may be wrong about it."""
    wall = NOW.timestamp() + 60.0
    (row,) = compared(messages.Result(seq=0, data={"wall": wall}))
    assert row == {"kind": "agent", "name": "n0", "ahead": 60.5, "within": 0.5}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        messages.Result(seq=0, ok=False, said="unsupported: this agent does not know 'clock'"),
        messages.Result(seq=0),
        *(messages.Result(seq=0, data={"wall": wall}) for wall in ("noon", True, None, [1.0])),
    ],
)
def test_who_does_not_say_is_not_compared(answer: messages.Result | None) -> None:
    """Silence, an older release, nonsense: absence is not a value."""
    (row,) = compared(answer)
    assert (row["name"], row["ahead"]) == ("n0", None)


def test_all_are_asked_at_once() -> None:
    """Fifty that say nothing cost one patience; who answered is there all the same."""
    began = SystemClock().now()
    rows = compared(*[None] * 50, messages.Result(seq=50, data={"wall": 0.0}))
    assert SystemClock().now() - began < 50 * 0.05
    assert [row["name"] for row in rows if row["ahead"] is not None] == ["n50"]


def test_wrong_clocks_are_found_on_real_parts(tmp_path: pathlib.Path) -> None:
    """A node three minutes ahead, a gateway behind: named by the doctor while they are, no longer once they are set."""
    compiler = shutil.which("cc")
    assert compiler is not None
    shim = tmp_path / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SHIM), "-ldl"], check=True)

    def set_to(who: str, seconds: int) -> None:
        (tmp_path / f"offset-{who}").write_text(str(seconds))

    def shifted(who: str) -> tuple[str, ...]:
        return ("env", f"LD_PRELOAD={shim}", f"CLOCK_OFFSET={tmp_path / f'offset-{who}'}")

    with Stage(tmp_path, {"alpha": "I am alpha."}) as stage:
        set_to("agent", 185)
        set_to("gateway", -40)
        stage.control()
        stage.processes.llmgw("n1", "agent", *stage.node_options("n1"), wrapper=shifted("agent"))
        stage.agent("n2")
        stage.gateway(wrapper=shifted("gateway"))

        def there() -> bool:
            status = stage.inside("status", "-o", "json")
            if status.returncode != Exit.DONE:
                return False
            told = json.loads(status.stdout)
            return [*told["nodes"].values()] == ["Ready", "Ready"] and len(told["gateways"]) == 1

        wait_for(there, "all are there", within=30.0)
        said = stage.inside("doctor").stdout
        assert "2 of 3 clocks differ from the control plane's: n1 3m5s ahead, " in said
        assert f":{stage.gateway_port} 40s behind\n" in said
        set_to("agent", 0)
        set_to("gateway", 0)
        assert "3 of 3 peers told theirs, the control plane's agrees" in stage.inside("doctor").stdout
