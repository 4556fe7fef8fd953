"""What people upload: read beside the loop, and never more than a catalog may be."""

import asyncio
import pathlib
import threading
from collections.abc import Mapping, Sequence

import pytest

from llmgw.catalog.diagnostics import Diagnostic
from llmgw.catalog.load import MAX_FILES, Cache, Checked
from llmgw.control import api as api_module
from llmgw.control.adoption import Proposal
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from tests.control.plane import Plane, files
from tests.transport.harness import until


class Slow(Cache):
    """Takes as long to check a catalog as the loop takes to say something meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = threading.Event(), threading.Event()

    def check(self, files: Mapping[str, bytes], before: Sequence[Diagnostic] = ()) -> Checked:
        self.began.set()
        assert self.go_on.wait(5), "nobody was heard meanwhile"
        return super().check(files, before)


def test_a_large_upload_is_read_beside_the_loop(tmp_path: pathlib.Path) -> None:
    """While it is read, everybody else is heard: agents that were not answered for seconds were let go."""
    plane, slow = Plane(tmp_path), Slow()
    plane.adoption._cache = slow

    async def story() -> None:
        planning = asyncio.ensure_future(plane.adoption.plan(Proposal(files("qwen"))))
        await until(slow.began.is_set, "it is read")
        assert not planning.done()
        slow.go_on.set()
        assert [row.model for row in (await planning).rows] == ["qwen"]

    plane.hears(events.Registered(NodeInfo("n0", "n0", engines=None)))
    asyncio.run(story())


def test_more_files_than_a_catalog_has(tmp_path: pathlib.Path) -> None:
    """It is refused before anything of it is read, with the number."""
    plane = Plane(tmp_path)
    many = {f"m{n}.yaml": "" for n in range(MAX_FILES + 1)}
    status, answer = plane.call("POST", "/v1/plan", {"files": many})
    assert status == 413
    assert answer["error"]["said"].startswith(f"cannot take {MAX_FILES + 1} files of 0 B: {MAX_FILES} files")
    assert plane.adoption._cache._pages == {}


def test_more_bytes_than_a_catalog_has(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file too large is too much as well, for `apply` as for `plan`."""
    monkeypatch.setattr(api_module, "MAX_TOTAL", 1_000)
    plane = Plane(tmp_path)
    for path in ("/v1/plan", "/v1/apply"):
        status, answer = plane.call("POST", path, {"files": {"m.yaml": "#" * 1_001}})
        assert (status, "1 file of 1.0 KB" in answer["error"]["said"]) == (413, True)
    assert plane.adoption.number == 0


def test_a_plan_finds_its_places_beside_the_loop(tmp_path: pathlib.Path) -> None:
    """Looking for the line of each new model was half of the time that a plan held the loop."""
    plane = Plane(tmp_path)
    catalog = asyncio.run(plane.adoption._load(files("qwen", "other")))
    trees = catalog.places._trees  # type: ignore[attr-defined]
    looked_at = {what for what, tree in trees.items() if "marks" in vars(tree)}
    assert looked_at == {"model/qwen", "model/other"}
