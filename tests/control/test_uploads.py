"""What people upload: read beside the loop, and never more than a catalog may be."""

import asyncio
import pathlib

import pytest

from llmgw.catalog.load import MAX_FILES
from llmgw.control import api as api_module
from llmgw.control.adoption import Proposal
from llmgw.kit.clock import SystemClock
from tests.control.plane import Plane, files

LARGE = 2_000
"""Models of a catalog that takes a good part of a second to read."""


def test_a_large_upload_is_read_beside_the_loop(tmp_path: pathlib.Path) -> None:
    """While it is read, everybody else is heard: agents that were not answered for seconds were let go."""
    plane, clock = Plane(tmp_path), SystemClock()
    proposal = Proposal(files(*(f"m{n}" for n in range(LARGE)), replicas=0))

    async def longest_silence() -> tuple[float, float]:
        reading = asyncio.ensure_future(plane.adoption._load(proposal.files))
        began = heard = clock.now()
        longest = 0.0
        while not reading.done():
            await asyncio.sleep(0.001)
            longest, heard = max(longest, clock.now() - heard), clock.now()
        assert len((await reading).models) == LARGE
        return longest, clock.now() - began

    longest, whole = asyncio.run(longest_silence())
    assert longest < whole / 4


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
    places = catalog.places._found  # type: ignore[attr-defined]
    assert places.keys() == {"model/qwen", "model/other"}
