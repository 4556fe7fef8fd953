"""A control plane on loopback whose day stands still: the real API over the recorded fleet, for verbs that ask it.

Used by the golden screens and by tests of the CLI that need an answer and no process. `Plane` is real but for
its clock; nothing is dispatched to anybody.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import http.server
import json
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator

from llmgw.catalog.load import load_files
from llmgw.control import snapshot
from llmgw.control.about import About
from llmgw.control.api import nothing_followed
from llmgw.control.asking import Asking
from llmgw.control.checking import Checking
from llmgw.control.clocks import Clocks
from llmgw.control.fleet_route import FleetApi
from llmgw.control.measuring import Measuring
from llmgw.control.peers import Peer
from llmgw.control.store import Revision
from llmgw.control.token_routes import TokenRoutes
from llmgw.control.tokens import Tokens
from llmgw.planning.asking import Given
from llmgw.planning.costs import Seen
from llmgw.transport.http import Request
from llmgw.wire import messages
from tests.control.plane import Plane
from tests.support import recorded


class Desk:
    """A plane, and where it answers."""

    def __init__(self, plane: Plane) -> None:
        self.plane, self.asked = plane, list[str]()
        desk = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                desk.asked.append(f"{self.command} {self.path}")
                size = int(self.headers.get("content-length") or 0)
                where = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(where.query))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(
                    self.command, where.path, query, headers, self.rfile.read(size), "127.0.0.1"
                )
                answer = asyncio.run(desk.plane.api.answer(request))
                assert isinstance(answer.body, bytes)
                self.send_response(answer.status)
                self.send_header("content-type", answer.content_type)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = _answer  # noqa: N815 - the names they are called by

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def open(self) -> Iterator["Desk"]:
        """Answer, until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def desk(root: pathlib.Path, found: snapshot.Snapshot | None = None, who: str = "ilker") -> Desk:
    """A desk over the recorded fleet (or another), as if it had been there all the while; `who` applied."""
    found = found or snapshot.read(recorded.FLEET.read_text(), recorded.FLEET.name)
    given, plane = found.given, Plane(root, timers=found.given.timers)
    plane.clock.at = given.now
    catalog = load_files({name: text.encode() for name, text in found.files.items()})
    wall, before = plane.clock.wall(), {n: text for n, text in found.files.items() if "phi-4" not in n}
    plane.store.add(
        Revision(
            number=given.number - 1, files=before, digest="6" * 64, commit="3f2a91c00000", who=who,
            message="before phi", plan="0c" * 32, at=wall - datetime.timedelta(days=2),
        )
    )  # fmt: skip
    plane.store.add(
        Revision(
            number=given.number, files=dict(found.files), digest=catalog.digest, commit="8c01d77aaaaa",
            who=who, message="bge for search" if who == "ilker" else who, plan="1b" * 32, at=wall - datetime.timedelta(hours=2),
        )
    )  # fmt: skip
    _tokens(root, plane.clock.wall(), who)
    plane.adoption.resume()
    plane.loop.fleet, plane.loop.ledger = given.fleet, given.ledger
    plane.loop.desired = dataclasses.replace(given.desired, catalog=catalog)
    plane.loop._listening = given.now
    plane.loop.decide()
    plane.sent.clear()
    plane.adoption._cluster = given.cluster
    plane.adoption._knowledge = _Known(given)  # type: ignore[assignment]
    plane.adoption._measuring = _Measured(given)
    plane.api._about["cluster"] = given.cluster
    about = About(
        plane.loop,
        plane.adoption,
        plane.store,
        plane.journal,
        plane.adoption._knowledge,
        plane.clock,
        about={"cluster": given.cluster, "build": "0.1.0"},
        followed=nothing_followed,
    )
    routes = {**FleetApi(plane.adoption, plane.clock).routes, **about.routes, **_clocks(plane).routes}
    tokens = TokenRoutes(Tokens(root, plane.clock.wall), required=False)
    plane.api._routes.update({**routes, **_checking(plane).routes, **tokens.routes})
    return Desk(plane)


def _clocks(plane: Plane) -> Clocks:
    """The clocks of the nodes that are connected, of which the first is three minutes ahead."""
    nodes = [node for node in plane.loop.fleet.nodes.values() if node.connected]
    peers = [Peer("agent", node.info.id, node.info.name, "", "", 1) for node in nodes]

    def send(node: str, make: Callable[[int, int], messages.Command]) -> bool:
        ahead = 185.0 if node == peers[0].id else 0.0
        wall = plane.clock.wall().timestamp() + ahead
        answer = messages.Result(seq=make(1, 1).seq, data={"wall": wall})
        asyncio.get_running_loop().call_soon(asking.answered, node, answer)
        return True

    asking = Asking(send)
    return Clocks(peers, asking, asking, plane.clock)  # type: ignore[arg-type]


def _checking(plane: Plane) -> Checking:
    """Engines that were run: one that tells its version, and one that does not start."""

    def send(node: str, make: Callable[[int, int], messages.Command]) -> bool:
        found = [
            {
                "name": each.name,
                "version": each.version,
                "path": f"/opt/{each.name}",
                "works": works,
                "checked": said,
            }
            for each, works, said in zip(
                plane.loop.fleet.nodes[node].info.engines or (),
                (True, False, False),
                ("0.19.0", "ImportError: libcudart.so.12", "".join(recorded.HOSTILE)),
                strict=False,
            )
        ]
        answer = messages.Result(seq=make(1, 1).seq, data={"engines": found})
        asyncio.get_running_loop().call_soon(asking.answered, node, answer)
        return True

    asking = Asking(send)
    return Checking(plane.loop, asking)


def _tokens(root: pathlib.Path, wall: datetime.datetime, who: str) -> None:
    """One of each kind, as they lie on the disk."""
    made = {"sha256": "0" * 64, "created": (wall - datetime.timedelta(days=9)).isoformat()}
    node = {"id": "0a1b2c3d", "kind": "node", "name": "gpu-a1", "bound": "id-gpu-a1", "bound_name": "gpu-a1"}
    later = (wall + datetime.timedelta(hours=1)).isoformat()
    kept = [
        node,
        {"id": "1b2c3d4e", "kind": "gateway", "name": who, "until": later},
        {"id": "2c3d4e5f", "kind": "api"},
    ]
    (root / "tokens.json").write_text(json.dumps({"tokens": [{**made, **each} for each in kept]}))


class _Measured(Measuring):
    """What the recorded control plane had measured."""

    def __init__(self, given: Given) -> None:
        super().__init__()
        self._given = given

    @property
    def seen(self) -> Seen:
        return self._given.known.seen


class _Known:
    """What the recorded control plane knew of models; it looks at nothing."""

    def __init__(self, given: Given) -> None:
        self.known, self.sizes = given.known.facts, given.desired.sizes
        self.unread = given.known.unread

    async def learn(self, *_: object) -> None:
        return

    def problems(self, *_: object) -> list[object]:
        return []
