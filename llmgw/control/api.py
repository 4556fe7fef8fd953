"""The JSON API of the CLI, on the port where agents and gateways connect. Plain routes in a table.

`transport.listener` calls `Api.answer`; everything it says is a value of `planning` as JSON. Errors are
one sentence and what would help, with a status that `cli.client` turns back into its error.
"""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pydantic

from llmgw.catalog.diagnostics import Invalid, as_text
from llmgw.catalog.load import MAX_FILES, MAX_TOTAL
from llmgw.control.adoption import Adoption, Proposal
from llmgw.control.collecting import Collecting
from llmgw.control.doors import turned_away
from llmgw.control.journal import Entry, Journal
from llmgw.control.loop import Loop
from llmgw.control.records import OnHold
from llmgw.errors import Blocked, CatalogInvalid, Failed, LlmgwError, Stale
from llmgw.fleet.node import NodeInfo
from llmgw.kit.clock import Clock
from llmgw.kit.text import count
from llmgw.kit.units import show_bytes
from llmgw.planning import screen
from llmgw.planning.asking import Asked
from llmgw.planning.gc import Listing, Wanted, listing
from llmgw.planning.plan import Plan
from llmgw.planning.reasons import reasons
from llmgw.planning.view import View
from llmgw.transport.http import Request, Response, problem
from llmgw.wire.bounds import flaw_of_node

Answer = Callable[[Request], Awaitable[Response]]
Routes = Mapping[tuple[str, str], Answer]
"""(method, path) → who answers."""

LONGEST_WAIT = 30.0
LONGEST_TIME = 366 * 86400.0
"""Seconds until something that people set may end by itself."""
LONGEST_NUMBER = 18
MOST_SUPPOSED = 1000
"""Nodes that a plan may suppose."""


class PlanBody(pydantic.BaseModel):
    """What `plan` and `apply` upload: the catalog's files by name, and who asks.

    `base` are the files of a catalog that waits already; then what is supposed, and what is shown.
    """

    files: dict[str, str]
    commit: str = ""
    who: str = ""
    message: str = ""
    expect: str = ""
    base: dict[str, str] | None = None
    only: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    with_nodes: tuple[NodeInfo, ...] = pydantic.Field(default=(), max_length=MOST_SUPPOSED)

    @pydantic.field_validator("with_nodes")
    @classmethod
    def _are_nodes(cls, nodes: tuple[NodeInfo, ...]) -> tuple[NodeInfo, ...]:
        if flaw := next(filter(None, map(flaw_of_node, nodes)), ""):
            raise ValueError(flaw)
        return nodes

    def proposal(self) -> Proposal:
        return Proposal(self.files, self.commit, self.who, self.message)

    def asked(self) -> Asked:
        return Asked(self.only, self.replace, self.without_nodes, self.with_nodes)


Body = TypeVar("Body", bound=PlanBody)


class CollectBody(pydantic.BaseModel):
    """What `gc --collect` sends: the id of the listing that was shown."""

    expect: str


_DUMP: Mapping[type, pydantic.TypeAdapter[Any]] = {
    kind: pydantic.TypeAdapter(kind)
    for kind in (Plan, Listing, list[Entry], tuple[screen.ReplicaRow, ...], tuple[screen.NodeRow, ...], tuple[screen.ModelRow, ...])
}  # fmt: skip


def nothing_followed() -> None:
    """What is followed where nobody named a catalog."""
    return


def open_door(_: Request) -> None:
    """The door of a control plane that only this machine can reach."""
    return


class Api:
    """Answers requests from the loop's present state. Owns nothing but its route table."""

    def __init__(
        self,
        loop: Loop,
        adoption: Adoption,
        journal: Journal,
        collecting: Collecting,
        clock: Clock,
        *,
        cluster: str,
        epoch: int,
        build: str,
        followed: Callable[[], Mapping[str, Any] | None] = nothing_followed,
        held: Callable[[], OnHold | None] = nothing_followed,
        hosts: frozenset[str] = frozenset(),
        more: Routes | None = None,
        door: Callable[[Request], Response | None] = open_door,
    ) -> None:
        """`hosts` are the names it answers to, beside addresses; `more` are the routes of other modules.

        `door` refuses requests without a token.
        """
        self._loop, self._adoption, self._journal = loop, adoption, journal
        self._collecting, self._clock = collecting, clock
        self._held = held
        self._followed, self._hosts, self._door = followed, hosts, door
        self._about = {"cluster": cluster, "epoch": epoch, "build": build}
        self._routes: dict[tuple[str, str], Answer] = {
            ("GET", "/v1/status"): self._status,
            ("GET", "/v1/replicas"): self._replicas,
            ("GET", "/v1/nodes"): self._nodes,
            ("GET", "/v1/models"): self._models,
            ("GET", "/v1/events"): self._events,
            ("GET", "/v1/gc"): self._gc,
            ("POST", "/v1/gc"): self._collect,
            ("POST", "/v1/plan"): self._plan,
            **(more or {}),
        }

    def refusal(self, request: Request) -> Response | None:
        """Why a request is not answered, by its head alone; None where it may come in."""
        return turned_away(request, self._hosts) or self._door(request)

    async def answer(self, request: Request) -> Response:
        """The answer to one request; every LlmgwError becomes a refusal that people can read."""
        # Asked again: a token may have been revoked while its body came.
        if (refusal := self.refusal(request)) is not None:
            return refusal
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self._routes)
            return problem(
                405 if known else 404, f"cannot {request.method} {request.path}: there is no such route"
            )
        try:
            return await route(request)
        except pydantic.ValidationError as error:
            return problem(400, f"cannot read this request: {error.errors()[0]['msg'].lower()}")
        except Invalid as invalid:
            return problem(422, f"{invalid.said}\n{as_text(invalid.diagnostics)}")
        except LlmgwError as error:
            return problem(_STATUS.get(type(error), 400), error.said, help=error.help)

    def _look(self) -> View:
        return self._loop.view()

    async def _status(self, _: Request) -> Response:
        view, standing = self._look(), self._adoption.standing
        waiting = screen.outstanding(view)
        late = list(dict.fromkeys(line.partition(":")[0] for line in waiting))
        return _json(
            {
                **self._about,
                "revision": self._adoption.number,
                "commit": standing.commit if standing is not None else "",
                "adopted": standing.at.isoformat() if standing is not None else "",
                "who": standing.who if standing is not None else "",
                "followed": self._followed(),
                "on_hold": held.model_dump(mode="json") if (held := self._held()) is not None else None,
                "event": self._journal.last,
                "heard": view.heard,
                "fenced": self._loop.fenced,
                "alarms": self._loop.alarms,
                "outstanding": waiting,
                "reasons": reasons(view, self._loop.unplaced, late),
                "nodes": {name: view.standings[name] for name in view.standings},
                "away": [_away(row) for row in screen.away(view)],
                "models": {
                    row.model: {"ready": row.ready, "wanted": row.wanted, "silent": row.silent}
                    for row in screen.model_rows(view)
                },
                "unplaced": [item.model for item in self._loop.unplaced if not item.stay],
                "gateways": sorted(view.fleet.gateways),
                "silent_gateways": {
                    name: view.now - gateway.last_seen
                    for name, gateway in sorted(view.fleet.gateways.items())
                    if view.silent(name)
                },
            }
        )

    async def _replicas(self, _: Request) -> Response:
        return _dump(tuple[screen.ReplicaRow, ...], screen.replica_rows(self._look(), self._loop.unplaced))

    async def _nodes(self, _: Request) -> Response:
        return _dump(tuple[screen.NodeRow, ...], screen.node_rows(self._look()))

    async def _models(self, _: Request) -> Response:
        return _dump(tuple[screen.ModelRow, ...], screen.model_rows(self._look()))

    async def _events(self, request: Request) -> Response:
        after = number_of(request, "after", 0)
        wait = min(LONGEST_WAIT, float(number_of(request, "wait", 0)))
        return _dump(list[Entry], await self._journal.wait(after, wait))

    async def _plan(self, request: Request) -> Response:
        body = upload(request, PlanBody)
        return _dump(
            Plan, await self._adoption.plan(body.proposal(), body.asked(), body.base, shown=not body.expect)
        )

    async def _gc(self, _: Request) -> Response:
        return _dump(Listing, self._listing())

    async def _collect(self, request: Request) -> Response:
        expect = CollectBody.model_validate_json(request.body).expect
        found = self._listing()
        if found.id != expect:
            raise Stale(
                f"cannot collect {expect}: the list is now {found.id}. Nothing was removed",
                help="look at it again with `llmgw gc`",
            )
        outcomes = await asyncio.gather(
            *(
                self._collecting.ask(node, entries, self._adoption.number)
                for node, entries in found.by_node().items()
            )
        )
        return _json({"nodes": [dataclasses.asdict(outcome) for outcome in outcomes]})

    def _listing(self) -> Listing:
        """Raises CatalogInvalid while no catalog stands: with none, "unwanted" would be a lie."""
        catalog = self._loop.desired.catalog
        if catalog is None:
            raise CatalogInvalid(
                "cannot list what is unwanted: no valid catalog is adopted", help="llmgw apply"
            )
        wanted = Wanted(frozenset(model.cache_name for model in catalog.models.values()))
        return listing(self._loop.fleet, wanted, self._clock.now(), self._loop.timers)


def upload(request: Request, kind: type[Body]) -> Body:
    """The upload, no larger than a catalog may be. Raises ValidationError or _TooMuch."""
    body = kind.model_validate_json(request.body)
    size = sum(map(len, (*body.files.values(), *(body.base or {}).values())))
    if max(len(body.files), len(body.base or ())) > MAX_FILES or size > MAX_TOTAL:
        raise _TooMuch(
            f"cannot take {count(len(body.files), 'file')} of {show_bytes(size)}: {MAX_FILES} files and "
            f"{show_bytes(MAX_TOTAL)} are the most of a catalog"
        )
    return body


class _TooMuch(LlmgwError):
    """More than any catalog is."""


_STATUS: Mapping[type[LlmgwError], int] = {
    CatalogInvalid: 422,
    Stale: 409,
    Blocked: 423,
    Failed: 500,
    _TooMuch: 413,
}


def number_of(request: Request, name: str, default: int) -> int:
    """A whole number of the query. Raises LlmgwError where it is none."""
    text = request.query.get(name, "")
    if not text:
        return default
    if len(text) > LONGEST_NUMBER or not (text.isascii() and text.isdecimal()):
        raise LlmgwError(
            f"cannot read {name}={text[:40]}: a whole number of {LONGEST_NUMBER} digits at most is needed"
        )
    return int(text)


def _away(row: screen.NodeRow) -> dict[str, Any]:
    """A node that does not speak, as status tells of it."""
    return {"name": row.name, "state": row.state, "seen": row.seen, "lost_in": row.lost_in}


def _dump(kind: Any, value: Any) -> Response:
    return Response(200, _DUMP[kind].dump_json(value))


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode())
