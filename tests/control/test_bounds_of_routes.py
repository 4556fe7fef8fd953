"""No route trusts a number, keeps without end, or reads the disk where everybody else has to wait for it."""

import json
import pathlib
import threading
from typing import Any

import pytest

from llmgw.control import expecting
from llmgw.control.expecting import Expecting, Wish
from llmgw.control.records import Happened, Record
from llmgw.control.store import Revision
from llmgw.control.token_routes import CreateBody
from llmgw.errors import Stale
from llmgw.planning.plan import Plan
from llmgw.planning.rows import Row
from llmgw.transport.http import Request
from tests.control.plane import Clock, Plane, files
from tests.control.test_hands import served

NUMBERS = (
    1e12,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
    -1,
    0,
    10**30,
    -(10**30),
    2**63,
    1e-300,
    "9" * 5000,
)
CARD = {"uuid": "u", "name": "H100", "memory_total": 80}
NODE = {"id": "z", "name": "z", "gpus": [CARD]}


def _post(plane: Plane, path: str, body: dict[str, Any]) -> int:
    headers = {"content-type": "application/json"}
    return plane.ask(Request("POST", path, {}, headers, json.dumps(body).encode()))[0]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: str(number)[:12])
def test_every_number_of_every_route(tmp_path: pathlib.Path, number: Any) -> None:
    """However large, small, or no number at all: an answer, and never a fault of ours."""
    plane = served(tmp_path)
    upload = {"files": files("qwen")}
    for path in ("/v1/hands", "/v1/hands/plan"):
        hand = {"verb": "pause", "name": "qwen", "seconds": number}
        assert _post(plane, path, hand) in (200, 400)
    assert _post(plane, "/v1/hold", {"reason": "x", "seconds": number}) in (200, 400)
    for key in ("cpu_cores", "memory_total", "memory_free", "disk_free", "ports"):
        assert _post(plane, "/v1/plan", {**upload, "with_nodes": [{**NODE, key: number}]}) in (200, 400)
    for key in ("memory_total", "memory_free"):
        node = {**NODE, "gpus": [{**CARD, key: number}]}
        assert _post(plane, "/v1/plan", {**upload, "with_nodes": [node]}) in (200, 400)
    line = {"symbol": "+", "model": "m", "why": "w", "generation": "", "said": "s", "count": number}
    promised = {"catalog": "c", "base": number, "lines": [line]}
    assert _post(plane, "/v1/apply", {**upload, "saved": promised}) in (200, 400, 409)
    for path, name in (
        ("/v1/history", "last"),
        ("/v1/history", "records"),
        ("/v1/revision", "number"),
        ("/v1/apply", "number"),
        ("/v1/events", "after"),
        ("/v1/logs", "rank"),
        ("/v1/logs", "tail"),
        ("/v1/logs", "offset"),
    ):
        status, _ = plane.ask(Request("GET", path, {name: str(number), "name": "none/x"}, {}, b""))
        assert status in (200, 400, 500)


@pytest.mark.parametrize(
    "more",
    [
        {"ports": [1, 10**10], "ports_taken": [10**10 - 1]},
        {"ports": [5, 4]},
        {"memory_total": -1},
        {"cpu_cores": 1e308},
        {"name": ""},
        {"gpus": [CARD] * 2000},
    ],
)
def test_a_supposed_node_is_held_to_what_a_real_one_may_say(
    tmp_path: pathlib.Path, more: dict[str, Any]
) -> None:
    """A port is a bit of a number: one request made it as large as it liked, while everybody waited."""
    plane = served(tmp_path)
    assert _post(plane, "/v1/plan", {"files": files("qwen"), "with_nodes": [NODE]}) == 200
    assert _post(plane, "/v1/plan", {"files": files("qwen"), "with_nodes": [{**NODE, **more}]}) == 400
    assert _post(plane, "/v1/plan", {"files": files("qwen"), "with_nodes": [NODE] * 1001}) == 400


def test_the_life_of_a_token_is_a_number_of_seconds() -> None:
    """What would be no date is refused."""
    for number in NUMBERS[:5]:
        with pytest.raises(ValueError, match="ttl"):
            CreateBody.model_validate({"kind": "api", "ttl": number})


def test_promises_are_kept_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plans of a thousand rows fewer are remembered than of small ones; the newest always is."""
    monkeypatch.setattr(expecting, "MOST_LINES", 2500)
    kept = Expecting()

    def show(name: str, count: int) -> str:
        rows = tuple(Row("+", f"m{n}", "model_added", "new", generation=f"{n:x}") for n in range(count))
        kept.showed(Plan(name * 64, 1, rows, ()))
        return name * 6

    def known(name: str) -> bool:
        with pytest.raises(Stale) as stale:
            kept.check(Wish(name), Plan("f" * 64, 1, (Row("-", "x", "y", "z"),), ()), Clock().wall())
        return "shown by no plan" not in stale.value.said

    names = [show(letter, 1000) for letter in "abc"]
    assert [known(name) for name in names] == [False, True, True]
    large = show("d", 3000)
    assert [known(name) for name in (*names, large)] == [False, False, False, True]
    small = [show(letter, 1) for letter in "12345"]
    assert [known(name) for name in (large, *small)] == [False, True, True, True, True, True]


def _kept(plane: Plane, count: int) -> None:
    """`count` revisions, each with its record."""
    now = plane.clock.wall()
    happened = (Happened(at=now, kind="action", about="m/abcd", said="start"),) * 3
    for number in range(2, count + 2):
        plane.store.add(Revision(number=number, files={}, digest=f"d{number}", at=now))
        plane.store.save_record(Record(number=number, began=now, actions=happened, ended=now, result="done"))
    plane.adoption._expecting.resume(plane.store.kept())


def test_history_reads_beside_the_loop(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests need no record; a record is read once, and never by the thread that everybody waits for."""
    plane = served(tmp_path)
    _kept(plane, 30)
    reads: list[tuple[int, threading.Thread]] = []
    read = type(plane.store).record

    def record(store: Any, number: int) -> Record | None:
        reads.append((number, threading.current_thread()))
        return read(store, number)

    monkeypatch.setattr(type(plane.store), "record", record)
    status, rows = plane.call("GET", "/v1/history", last="0", records="0")
    assert (status, len(rows), reads) == (200, 31, [])
    assert rows[0]["digest"] == "d31"
    status, rows = plane.call("GET", "/v1/history", last="10")
    assert [row["actions"] for row in rows] == [3] * 10
    assert [row["result"] for row in rows] == ["done"] * 10
    assert sorted(number for number, _ in reads) == list(range(22, 32))
    plane.call("GET", "/v1/history", last="10")
    assert len(reads) == 10
    assert plane.call("GET", "/v1/revision", number="5")[1]["record"]["result"] == "done"
    assert all(thread is not threading.main_thread() for _, thread in reads)


def test_a_record_that_goes_on_is_told_as_it_is_now(tmp_path: pathlib.Path) -> None:
    """What is kept in short is only what changes no more."""
    plane = Plane(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    assert [row["result"] for row in plane.call("GET", "/v1/history")[1]] == ["goes on"]
    plane.call("POST", "/v1/apply", {"files": files("qwen", "other")})
    newest, first = plane.call("GET", "/v1/history")[1]
    assert (newest["result"], first["result"][:10]) == ("goes on", "superseded")
