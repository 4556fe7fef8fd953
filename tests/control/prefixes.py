"""Every beginning of every file of a catalog, written while the catalog is followed and everything runs.

Called by the lab `watch` and by a test that takes a few of them. A node obeys at once, so a stop that was
decided would be dispatched; the guard that plans pass through counts how many beginnings would have
stopped something, had they been applied.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Mapping

from llmgw.catalog.model import Catalog
from llmgw.control.commits import Commits
from llmgw.control.holding import Rules
from llmgw.control.settling import Pace
from llmgw.control.trees import Directory, Tree
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.kit.clock import SystemClock
from llmgw.kit.tasks import Tasks
from llmgw.planning.actions import Action, Assign, Start, Stop
from llmgw.planning.plan import Plan
from tests.control.following import Followed, until
from tests.control.plane import Plane, Ticking
from tests.control.repository import Repository

SOON = Pace(settle=0.01, rescan=0.02, patience=60.0)
AT_ONCE = Timers(min_ready=0.0, stop_grace=0.1)

RICH = {
    "models/block.yaml": """\
kind: model
name: block
source: http://127.0.0.1:1/block.gguf
sha256: abababababababababababababababababababababababababababababababab
profiles:
  - wide
  - narrow
aliases:
  - first
  - second
protect: false
scaling:
  target_in_flight: 8
  max: 12
  min: 2
""",
    "profiles/wide.yaml": """\
args:
  threads: 2
  cache-ram: 128
kind: profile
drain: 30s
gpus_per_node: 0
engine: llamacpp
name: wide
env: {LLAMA_LOG_COLORS: "0"}
cpu: {cores: 1, memory: 64MiB}
max_model_len: 2048
""",
    "profiles/narrow.yaml": """\
kind: profile
name: narrow
engine: llamacpp
gpus_per_node: 0
cpu: {cores: 0.5, memory: 64MiB}
max_model_len: 1024
""",
}
"""Beside the demo's catalog: lists and mappings in block style, where a cut leaves valid YAML behind."""


class Obedient(Plane):
    """A plane with one large node, which does at once what it is told."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, clock=Ticking(), timers=AT_ONCE)
        self.hears(events.Registered(NodeInfo("n0", "n0", engines=None)))

    def _dispatch(self, action: Action) -> bool:
        super()._dispatch(action)
        match action:
            case Assign(spec=spec):
                self._says(ShardStatus(*spec.key, "held"))
            case Start(key=key):
                self._says(ShardStatus(*key, "ready"))
            case Stop(key=key):
                self._says(ShardStatus(*key, "gone"))
        return True

    def _says(self, status: ShardStatus) -> None:
        asyncio.get_running_loop().call_soon(self.hears, events.Reported("n0", (status,)))

    @property
    def serves(self) -> bool:
        """Whether everything that the catalog asks for runs."""
        status = [shard.state for shard in self.loop.fleet.shards.values()]
        catalog = self.loop.desired.catalog
        wanted = 0 if catalog is None else sum(model.scaling.min for model in catalog.models.values())
        return len(status) == wanted > 0 and set(status) == {"ready"}


@dataclasses.dataclass(slots=True)
class Counts:
    """What was written, what came of it, and what it would have done."""

    written: int = 0
    looked_at: int = 0
    held: int = 0
    blind: int = 0
    would_stop: int = 0
    adopted: int = 0
    stops: int = 0


class CountedCommits(Commits):
    """Counts the looks that ended."""

    looks = 0

    def look(self) -> Tree:
        tree = super().look()
        self.looks += 1
        return tree


def samples(root: pathlib.Path) -> dict[str, bytes]:
    """The files of the catalog at `root`, and of `RICH`."""
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.yaml"))}
    return {**found, **{name: text.encode() for name, text in RICH.items()}}


async def by_files(scratch: pathlib.Path, files: Mapping[str, bytes], every: int = 1) -> Counts:
    """Write each prefix in place and wait until it was judged. `every` = 1 takes them all."""
    root, counts = scratch / "catalog", Counts()
    _write(root, files)
    seen = Directory(root, SystemClock())
    async with _serving(scratch, Directory(root, SystemClock()), Rules("files", "auto"), counts) as followed:
        for name, data in files.items():
            for length in (*range(0, len(data), every), len(data)):
                (root / name).write_bytes(data[:length])
                mark = seen.look().mark
                await until(
                    lambda mark=mark: followed.watch._followed.mark == mark, f"{name}[:{length}] is judged"
                )  # type: ignore[misc]
                counts.written += 1
                counts.looked_at += 1
                counts.held += followed.why != ""
    return counts


async def by_commits(scratch: pathlib.Path, files: Mapping[str, bytes], every: int = 1) -> Counts:
    """Write each prefix into the work tree and wait until it was looked at: nothing of it is committed."""
    counts = Counts()
    repository = Repository(scratch / "fleet")
    _write(repository.catalog, files)
    repository.commit()
    source = CountedCommits(repository.catalog)
    async with _serving(scratch, source, Rules("commits", "auto"), counts) as followed:
        for name, data in files.items():
            for length in range(0, len(data), every):
                (repository.catalog / name).write_bytes(data[:length])
                looks = source.looks + 1  # one may be under way
                await until(lambda looks=looks: source.looks > looks, f"{name}[:{length}] is looked at")  # type: ignore[misc]
                counts.written += 1
                counts.looked_at += f"catalog/{name}" in followed.watch.report()["dirty"]
            (repository.catalog / name).write_bytes(data)
    return counts


@contextlib.asynccontextmanager
async def _serving(
    scratch: pathlib.Path, source: Directory | Commits, rules: Rules, counts: Counts
) -> AsyncIterator[Followed]:
    """A watch that runs over a fleet that runs; at the end, what was dispatched is counted."""

    plane = Obedient(scratch / "state")
    rehearse = plane.adoption.rehearse

    def counting(catalog: Catalog) -> Plan:
        plan = rehearse(catalog)
        counts.would_stop += any("-" in row.symbol for row in plan.rows)
        return plan

    plane.adoption.rehearse = counting  # type: ignore[method-assign]
    followed = Followed(scratch / "state", source, rules, pace=SOON, plane=plane)
    tasks = Tasks()
    tasks.start("loop", plane.loop.run())
    tasks.start("watch", followed.watch.run(tasks))
    try:
        await until(lambda: plane.serves, "everything runs")
        began = followed.number
        yield followed
        await until(lambda: plane.serves, "everything still runs")
        counts.adopted, counts.stops = followed.number - began, len(followed.stops)
    finally:
        await tasks.close()


def _write(root: pathlib.Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
