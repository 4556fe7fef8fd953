"""A catalog that is followed in a test: the real watch over real files, in the process of the test.

`Followed` is a plane whose watch is looked at by hand on a clock that the test moves; `live` runs the
watch by itself, listeners and all, at a pace of milliseconds.
"""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping

from llmgw.control.holding import Hold, Rules
from llmgw.control.settling import Pace
from llmgw.control.watch import Source, Watch
from llmgw.kit.clock import SystemClock
from llmgw.kit.tasks import Tasks
from llmgw.planning.actions import Stop
from tests.control.plane import Plane, Ticking

PACE = Pace(settle=0.75, rescan=5.0, patience=60.0)
FAST = Pace(settle=0.03, rescan=0.3, patience=60.0)


class Followed:
    """A plane and the watch of its catalog."""

    def __init__(
        self,
        state: pathlib.Path,
        source: Source,
        rules: Rules,
        *,
        pace: Pace = PACE,
        plane: Plane | None = None,
    ) -> None:
        self.plane = plane or Plane(state)
        self.plane.adoption.resume()
        self.watch = Watch(
            source,
            rules,
            pace,
            self.plane.adoption,
            self.plane.store,
            self.plane.journal,
            self.plane.clock,
            held=lambda: self.plane.switch.held,
        )

    def settles(self) -> None:
        """Two looks, far enough apart."""
        asyncio.run(self.watch.look())
        self.plane.clock.at += PACE.settle
        asyncio.run(self.watch.look())

    @property
    def number(self) -> int:
        """The revision that stands."""
        return self.plane.adoption.number

    @property
    def models(self) -> list[str]:
        """The models of the catalog that stands."""
        catalog = self.plane.adoption.catalog
        return [] if catalog is None else sorted(catalog.models)

    def bound(self, model: str = "qwen") -> int:
        """How many replicas the catalog that stands wants of a model."""
        catalog = self.plane.adoption.catalog
        return 0 if catalog is None else catalog.models[model].scaling.min

    @property
    def hold(self) -> Hold | None:
        """What is held now."""
        return self.watch._current().hold

    @property
    def why(self) -> str:
        """Why something is held; empty where nothing is."""
        return self.hold.why if self.hold is not None else ""

    @property
    def stops(self) -> list[Stop]:
        """Every stop that was dispatched."""
        return [action for action in self.plane.sent if isinstance(action, Stop)]


@contextlib.asynccontextmanager
async def live(
    state: pathlib.Path, source: Source, rules: Rules, pace: Pace = FAST
) -> AsyncIterator[Followed]:
    """A watch that runs by itself until the block ends; what fails in it fails the test."""
    followed = Followed(state, source, rules, pace=pace, plane=Plane(state, clock=Ticking()))
    tasks = Tasks()
    watching = tasks.start("watch", followed.watch.run(tasks))
    try:
        yield followed
        if watching.done():
            watching.result()
    finally:
        await tasks.close()


async def until(condition: Callable[[], bool], what: str, within: float = 5.0) -> None:
    """Wait for a condition; AssertionError that says `what` after `within` seconds."""
    clock = SystemClock()
    limit = clock.now() + within
    while not condition():
        assert clock.now() < limit, f"waited {within:g} s in vain: {what}"
        await asyncio.sleep(0.005)


def write(root: pathlib.Path, texts: Mapping[str, str]) -> None:
    """These files and no others, each written over in place."""
    root.mkdir(parents=True, exist_ok=True)
    for path in root.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (root / name).write_text(text)
