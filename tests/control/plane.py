"""A control plane without sockets: the real loop, adoption and API over a clock that the test moves."""

import asyncio
import datetime
import json
import pathlib
from typing import Any

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.sources import Source
from llmgw.control.about import About
from llmgw.control.adoption import Adoption
from llmgw.control.api import Api
from llmgw.control.applying import Applying
from llmgw.control.asking import Asking
from llmgw.control.collecting import Collecting
from llmgw.control.hands import Hands
from llmgw.control.hands_api import HandsApi
from llmgw.control.journal import Journal
from llmgw.control.keeping import Keeping
from llmgw.control.knowledge import Knowledge
from llmgw.control.logs import Logs
from llmgw.control.loop import Loop
from llmgw.control.recording import Recording
from llmgw.control.store import Store
from llmgw.control.switch import Switch
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.routes import Routes
from llmgw.fleet.world import Fleet
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.planning.actions import Action
from llmgw.planning.desired import Desired
from llmgw.planning.guards import Limits
from llmgw.planning.ledger import Ledger
from llmgw.transport.http import Request, Response
from llmgw.transport.ranges import CannotRead
from llmgw.wire import messages

MODEL = """kind: model
name: {name}
source: http://127.0.0.1:1/{name}.gguf
sha256: {sha}
profiles: [small]
scaling: {{min: {replicas}, max: 9}}
"""
PROFILE = "kind: profile\nname: small\nengine: llamacpp\ngpus_per_node: 0\ncpu: {{cores: 1, memory: 1GiB}}\nmax_model_len: {length}\n"


def files(*names: str, replicas: int = 1, length: int = 512) -> dict[str, str]:
    """A catalog's files: these models over one profile."""
    models = {f"{n}.yaml": MODEL.format(name=n, sha="cd" * 32, replicas=replicas) for n in names}
    return {**models, "small.yaml": PROFILE.format(length=length)}


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def wall(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=self.at)


class Ticking(Clock):
    """The clock of this machine, where things happen by themselves."""

    def now(self) -> float:
        return SystemClock().now()

    def wall(self) -> datetime.datetime:
        return SystemClock().wall()


async def _unreadable(source: Source) -> ModelFacts:
    """Nobody looks into a model here."""
    raise CannotRead(source.canonical)


class Plane:
    """The parts, wired as `serve` wires them; what was sent and published is kept."""

    def __init__(
        self,
        root: pathlib.Path,
        *,
        roster: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        timers: Timers | None = None,
        knowledge: Knowledge | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.sent: list[Action] = []
        self.published: list[Routes] = []
        self.commands: list[messages.Command] = []
        (root / "revisions").mkdir(parents=True, exist_ok=True)
        self.store = Store(root)
        self.journal = Journal(self.clock)
        self.loop = Loop(
            desired=Desired(),
            fleet=Fleet(since=self.clock.now(), roster=roster),
            ledger=Ledger(),
            timers=timers or Timers(),
            clock=self.clock,
            chance=seeded(1),
            journal=self.journal,
            dispatch=self._dispatch,
            publish=self.published.append,
        )
        self.recording = Recording(self.store, self.loop, self.journal, Keeping(self.journal), self.clock)
        self.keeping = keeping = Keeping(self.journal)
        self.switch = Switch(self.store, self.journal, keeping, self.clock)
        self.adoption = Adoption(
            self.store,
            self.loop,
            self.journal,
            self.clock,
            seeded(2),
            knowledge,
            limits=limits,
            recording=self.recording,
        )
        self.asking = Asking(self._send)
        self.collecting = Collecting(self.asking, patience=0.05)
        self.forgotten: list[str] = []
        self.hands = Hands(
            self.store, self.loop, self.journal, keeping, self.clock, forget=self.forgotten.append
        )
        self.hands.resume()
        self.logs = Logs(self.loop, self.asking)
        self.about = About(
            self.loop,
            self.adoption,
            self.store,
            self.journal,
            knowledge or Knowledge(_unreadable, self.clock),
            self.clock,
            about={"cluster": "test", "build": "0"},
            followed=lambda: None,
        )
        hands = HandsApi(self.hands, self.adoption, self.loop, self.journal, self.clock, seeded(3))
        applying = Applying(self.adoption, self.store, self.recording, self.switch, self.journal)
        self.api = Api(
            self.loop,
            self.adoption,
            self.journal,
            self.collecting,
            self.clock,
            cluster="test",
            epoch=3,
            build="0",
            more={**applying.routes, **hands.routes, **self.logs.routes, **self.about.routes},
        )

    def _dispatch(self, action: Action) -> bool:
        self.logs.ordered(action)
        self.sent.append(action)
        return True

    def _send(self, node: str, make: Any) -> bool:
        if node not in self.loop.fleet.nodes:
            return False
        self.commands.append(make(3, len(self.commands) + 1))
        return True

    def hears(self, event: events.Event) -> None:
        self.loop.hear(event)

    def passes(self, seconds: float, *, listening: bool = True) -> None:
        """Time passes; with `listening` the pulse goes on meanwhile."""
        steps = int(seconds / 0.2) if listening else 1
        for _ in range(steps):
            self.clock.at += seconds / steps
            if listening:
                self.loop._notice_stall()

    def call(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
        """One request to the API: its status and its JSON."""
        headers = {"host": "127.0.0.1:7600", "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else b""
        return self.ask(Request(method, path, query, headers, data))

    def ask(self, request: Request) -> tuple[int, Any]:
        """One request as it is."""
        answer: Response = asyncio.run(self.api.answer(request))
        assert isinstance(answer.body, bytes)
        return answer.status, json.loads(answer.body)
