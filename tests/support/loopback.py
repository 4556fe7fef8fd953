"""A real control plane on loopback, in a thread of this process, and nodes that do at once what they are told.

The plane is `control.serve` itself with its sockets; a node is the real link of an agent around a few
lines that obey. Called by the labs that race applies against each other; the CLI is called as a person would.
"""

import asyncio
import contextlib
import dataclasses
import io
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from llmgw.agent.connection import Link
from llmgw.cli.client import Client
from llmgw.cli.main import run as llmgw
from llmgw.control import serve as control
from llmgw.control.knowledge import Bounds
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import Gpu, NodeInfo
from llmgw.fleet.shard import ShardKey, ShardSpec, ShardStatus
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.planning.guards import Limits
from llmgw.transport.client import connect
from llmgw.wire import messages
from llmgw.wire.session import Command
from tests.support.waiting import wait_for

FAST = Timers(min_ready=0.0, stop_grace=0.1, place_grace=1.0, lost_grace=1.0, unreachable=1.5)
SOON = Backoff(base=0.01, cap=0.1, share=0.5)


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Node:
    """One node. `obeyed` counts its commands; what it was told to run, it says that it runs.

    While it is `held` it takes its commands and does nothing about them, until it is `let`.
    """

    def __init__(self, info: NodeInfo, port: int, *, backoff: Backoff = SOON) -> None:
        self.info, self.obeyed, self.held = info, 0, False
        self._waiting: list[Command] = []
        self._shards: dict[ShardKey, tuple[ShardSpec, ShardStatus]] = {}
        self._since: dict[ShardKey, float] = {}
        self._link = Link(
            lambda: connect("127.0.0.1", port, "/agent"),
            snapshot=self._snapshot,
            heartbeat=messages.Heartbeat,
            adopt=lambda _epoch, _revision: None,
            obey=self._obey,
            clock=SystemClock(),
            chance=seeded(info.id),
            backoff=backoff,
        )

    @property
    def registered(self) -> bool:
        """Whether the control plane knows it now."""
        return self._link.registered

    def runs(self, spec: ShardSpec, seconds: float) -> None:
        """A shard that has been ready for so long when the node comes."""
        self._shards[spec.key] = (spec, ShardStatus(*spec.key, "ready"))
        self._since[spec.key] = SystemClock().now() - seconds

    async def run(self) -> None:
        await self._link.run()

    def let(self) -> None:
        """Do what it was told meanwhile. In the thread of the control plane only."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self._do(command)

    def _snapshot(self) -> messages.Register:
        now = SystemClock().now()
        aged = (
            (spec, dataclasses.replace(status, age=now - self._since[key]))
            for key, (spec, status) in self._shards.items()
        )
        return messages.Register(info=self.info, shards=tuple(aged))

    def _obey(self, command: Command) -> None:
        self.obeyed += 1
        if self.held:
            self._waiting.append(command)
        else:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case messages.Assign(spec=spec):
                self._says(spec, ShardStatus(*spec.key, "held"))
            case messages.Start(replica=replica, rank=rank) if (replica, rank) in self._shards:
                self._says(self._shards[replica, rank][0], ShardStatus(replica, rank, "ready"))
            case messages.Stop(replica=replica, rank=rank):
                self._shards.pop((replica, rank), None)
                self._link.report([ShardStatus(replica, rank, "gone")])

    def _says(self, spec: ShardSpec, status: ShardStatus) -> None:
        self._shards[spec.key] = (spec, status)
        self._since[spec.key] = SystemClock().now()
        self._link.report([status])


class Loopback(contextlib.AbstractContextManager["Loopback"]):
    """The control plane and its nodes. `cards` of each node, by its name."""

    def __init__(
        self,
        directory: pathlib.Path,
        cards: Mapping[str, int],
        *,
        limits: Limits | None = None,
        following: control.Following | None = None,
        tokens: bool = False,
    ) -> None:
        self.directory = directory
        self._settings = control.Settings(
            directory / "control", "127.0.0.1", 0, "lab", 0.2, FAST, following,
            bounds=Bounds(patience=0.2), guards=limits or Limits(), tokens=tokens,
        )  # fmt: skip
        self._cards = dict(cards)
        self.nodes: dict[str, Node] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listens, self._end = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="loopback")
        self.port = 0

    def __enter__(self) -> "Loopback":
        self._thread.start()
        assert self._listens.wait(20.0), f"the control plane does not listen: {self._failure}"
        self.client = Client(f"127.0.0.1:{self.port}")
        for name in self._cards:
            self.comes(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client._http.close()
        self._soon(self._end.set)
        self._thread.join(20.0)
        if self._failure is not None and error is None:
            raise self._failure

    # --- nodes --------------------------------------------------------------------------------

    def comes(self, name: str) -> None:
        """A node registers, with nothing on it."""
        gpus = tuple(Gpu(f"{name}-{i}", "H100", 80 << 30) for i in range(self._cards[name]))
        self.nodes[name] = Node(NodeInfo(name, name, gpus=gpus, engines=None), self.port)
        self._soon(lambda: self._start(name))
        wait_for(
            lambda: self.standings().get(name) == "Ready" and self.nodes[name].registered,
            f"{name} registers",
            within=10.0,
        )

    def goes(self, name: str) -> None:
        """A node falls silent; until it is Unreachable."""
        self._soon(self._tasks[name].cancel)
        wait_for(lambda: self.standings().get(name) != "Ready", f"{name} is gone", within=10.0)

    def hold(self) -> None:
        """From now on no node does anything."""
        for node in self.nodes.values():
            node.held = True

    def let(self) -> None:
        """Every node does what it was told meanwhile, and goes on obeying."""
        for node in self.nodes.values():
            self._soon(node.let)

    def standings(self) -> Mapping[str, str]:
        """Name → what the control plane thinks of it."""
        return {row["name"]: row["state"] for row in self.client.get("/v1/nodes")}

    @property
    def obeyed(self) -> int:
        """Commands that reached a node."""
        return sum(node.obeyed for node in self.nodes.values())

    def quiet(self, within: float = 10.0) -> None:
        """Until nothing is outstanding."""
        wait_for(
            lambda: not self.client.get("/v1/status")["outstanding"], "the fleet is quiet", within=within
        )

    # --- people -------------------------------------------------------------------------------

    def write(self, files: Mapping[str, str], name: str = "catalog") -> pathlib.Path:
        """A directory with this catalog and nothing else."""
        root = self.directory / name
        root.mkdir(exist_ok=True)
        for path in root.iterdir():
            if path.name not in files:
                path.unlink()
        for each, text in files.items():
            (root / each).write_text(text)
        return root

    def cli(self, *words: str) -> Ran:
        """One command, as `llmgw` runs it."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = llmgw([*words, "--server", f"127.0.0.1:{self.port}"])
        return Ran(code, out.getvalue(), err.getvalue())

    # --- the thread ---------------------------------------------------------------------------

    def _soon(self, call: Callable[[], Any]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    def _start(self, name: str) -> None:
        assert self._loop is not None
        self._tasks[name] = self._loop.create_task(self.nodes[name].run())

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told in the thread that waits
            self._failure = error
        self._listens.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()

        def ready(_: str, port: int) -> None:
            self.port = port
            self._listens.set()

        plane = self._loop.create_task(control.run(self._settings, ready=ready))
        ending = self._loop.create_task(self._end.wait())
        await asyncio.wait((plane, ending), return_when=asyncio.FIRST_COMPLETED)
        rest = [*self._tasks.values(), ending, plane]
        for task in rest:
            task.cancel()
        for task in rest:
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.contextmanager
def planted(target: Any, name: str, wrong: Any) -> Iterator[None]:
    """With a bug in place of what is right."""
    right = target.__dict__[name]
    setattr(target, name, wrong)
    try:
        yield
    finally:
        setattr(target, name, right)
