"""A control plane that follows a large catalog, timed from inside: for a process of its own.

    python -m tests.support.followed_plane files|commits DIRECTORY EDITS

DIRECTORY holds `catalog/`, in a git work tree for commits. The real control plane runs and follows it; one
file is edited (and committed) after the other. What is timed is the edge that the watch calls: when a look
began, when it had read, when there was a new catalog, when it stood. Prints one line of JSON, milliseconds.
"""

import asyncio
import json
import logging
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, cast

from llmgw.catalog.load import Cache
from llmgw.control import serve
from llmgw.control.adoption import Adoption
from llmgw.control.commits import Commits
from llmgw.control.knowledge import Bounds
from llmgw.control.settling import Pace
from llmgw.control.trees import Directory
from llmgw.kit.clock import SystemClock

PACE = Pace(settle=0.75, rescan=5.0)
REST = 4.0
"""Seconds between two edits: what the last one was adopted with is over."""
Watch = Literal["files", "commits"]


class Times:
    """When something happened last, by its name; `Times.of` notes when a function begins and ends."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.stood = asyncio.Event()

    def of(self, owner: type, name: str) -> None:
        """Note every call of `owner.name` from now on."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.at[f"{name} began"] = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.at[f"{name} ended"] = time.perf_counter()

        setattr(owner, name, timed)


def git(root: pathlib.Path, *arguments: str) -> None:
    """One git command in the work tree."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost", "-c", "gc.auto=0")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


async def measured(watch: Watch, root: pathlib.Path, edits: int) -> dict[str, float]:
    """The median edit: parts of the time to a new catalog, and to the one that stands."""
    times, catalog = Times(), root / "catalog"
    source = Commits if watch == "commits" else Directory
    for owner, name in ((source, "look"), (Cache, "check"), (Adoption, "adopt")):
        times.of(owner, name)
    settings = serve.Settings(
        state_dir=root / "state",
        port=0,
        following=serve.Following(catalog, watch, "auto", pace=PACE),
        bounds=Bounds(patience=0.0),
    )
    plane = asyncio.create_task(serve.run(settings))
    edited = sorted(catalog.rglob("model-*.yaml"))
    found: list[dict[str, float]] = []
    try:
        await stands(times, 0.0, plane, 120.0)
        for path in edited[:edits]:
            await asyncio.sleep(REST)
            text = path.read_text().replace("target_in_flight: 16", "target_in_flight: 24")
            beside = path.with_name(f".{path.name}")
            beside.write_text(text)
            began = time.perf_counter()
            beside.replace(path)
            if watch == "commits":
                git(root, "add", str(path))
                await asyncio.to_thread(git, root, "commit", "--quiet", "--message", "edited")
                moved = (root / ".git" / "refs" / "heads" / "main").stat().st_mtime_ns / 1e9
                began = time.perf_counter() - (SystemClock().wall().timestamp() - moved)
            await stands(times, began, plane, 20.0)
            found.append(parts(times.at, began, PACE.settle if watch == "files" else 0.0))
    finally:
        plane.cancel()
        await asyncio.gather(plane, return_exceptions=True)
    return {name: round(statistics.median(one[name] for one in found), 1) for name in found[0]}


def parts(at: dict[str, float], began: float, settle: float) -> dict[str, float]:
    """Milliseconds of one edit; those that begin with the edit are without the settling."""
    return {
        "looked": 1000 * (at["look ended"] - at["look began"]),
        "checked": 1000 * (at["check ended"] - at["check began"]),
        "look to catalog": 1000 * (at["check ended"] - at["look began"]),
        "edit to catalog": 1000 * (at["check ended"] - began - settle),
        "edit to adopted": 1000 * (at["adopt ended"] - began - settle),
    }


async def stands(times: Times, since: float, plane: "asyncio.Task[None]", within: float) -> None:
    """Until a catalog was adopted after `since`."""
    limit = time.perf_counter() + within
    while times.at.get("adopt ended", 0.0) <= since:
        if plane.done():
            plane.result()
        assert time.perf_counter() < limit, f"nothing was adopted within {within:g} s: {times.at}"
        await asyncio.sleep(0.01)


def main() -> None:
    logging.disable(logging.WARNING)
    watch, root, edits = sys.argv[1:]
    found = asyncio.run(measured(cast("Watch", watch), pathlib.Path(root), int(edits)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
