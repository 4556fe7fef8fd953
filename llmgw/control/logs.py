"""What engines said, read along: finds whose log is meant, and sends it on piece by piece.

A route of the API, for `llmgw logs`. Every piece is asked for when the one before was taken, so a slow
reader slows only itself, and following ends with whoever follows. What people wrote that cannot be
found is refused before the first line.
"""

import collections
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import pydantic

from llmgw.catalog.suggest import did_you_mean
from llmgw.control.api import Routes
from llmgw.control.asking import Asking, NoAnswer
from llmgw.control.loop import Loop
from llmgw.control.names import NoSuchName, model_named
from llmgw.errors import Failed
from llmgw.fleet.shard import ShardKey, ShardSpec
from llmgw.kit.units import show_bytes, show_seconds
from llmgw.planning.actions import Action, Assign
from llmgw.transport.http import Request, Response
from llmgw.wire import messages

KEPT = 4096
"""Shards of which it is remembered where they ran."""

STREAMS = 64
"""Logs that are read at a time."""

WAIT = 4.0
"""Seconds until somebody who follows hears that there is nothing new."""

PATIENCE = 10.0
MOST_LINES = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Whose output, on which node. Without a `replica`: of the model's that ended last there."""

    node: str
    model: str
    replica: str
    rank: int
    previous: bool = False


class Logs:
    """Answers `GET /v1/logs` for one control plane."""

    def __init__(self, loop: Loop, asking: Asking) -> None:
        self._loop, self._asking = loop, asking
        self._places: collections.OrderedDict[ShardKey, str] = collections.OrderedDict()
        self._streams = 0

    @property
    def routes(self) -> Routes:
        return {("GET", "/v1/logs"): self._logs}

    def ordered(self, action: Action) -> None:
        """An order went out: where a shard runs is remembered after it is gone."""
        if isinstance(action, Assign):
            self.known([action.spec])

    def known(self, specs: Iterable[ShardSpec]) -> None:
        """These shards are, or were, on their nodes."""
        for spec in specs:
            self._places.pop(spec.key, None)
            self._places[spec.key] = spec.node
        while len(self._places) > KEPT:
            self._places.popitem(last=False)

    # --- whose log ----------------------------------------------------------------------------

    def target(self, name: str, rank: int, *, previous: bool) -> Target:
        """The log that is meant. Raises NoSuchName."""
        replica = name if "/" in name else "" if previous else self._only(name, rank)
        model = replica.rpartition("/")[0] if replica else model_named(name, *self._names())
        if previous or not replica:
            return self._before(model, replica, rank)
        node = self._places.get((replica, rank))
        if node is None:
            raise self._unknown(replica, rank)
        return Target(node, model, replica, rank)

    def _names(self) -> tuple[Any, Any]:
        return self._loop.desired.catalog, self._loop.fleet

    def _only(self, name: str, rank: int) -> str:
        """The one replica of the model, nothing where it has none now."""
        model = model_named(name, *self._names())
        found = sorted({key[0] for key, s in self._loop.fleet.shards.items() if s.spec.model == model})
        if len(found) > 1:
            raise NoSuchName(
                f"cannot tell which replica of {model} is meant: it has {', '.join(found)}",
                help=f"llmgw logs {found[0]}" + (f" --rank {rank}" if rank else ""),
            )
        return found[0] if found else ""

    def _before(self, model: str, replica: str, rank: int) -> Target:
        """Where the predecessor ran: as far as it is remembered, else whatever its place still has."""
        alive = {key for key, shard in self._loop.fleet.shards.items() if shard.state != "failed"}
        order = list(self._places)
        own = order.index((replica, rank)) if (replica, rank) in self._places else len(order)
        for key in reversed(order[:own]):
            if key[0].rpartition("/")[0] == model and key[1] == rank and key not in alive:
                return Target(self._places[key], model, key[0], rank)
        if (replica, rank) in self._places:
            return Target(self._places[replica, rank], model, replica, rank, previous=True)
        blamed = [t for (name, _), t in self._loop.ledger.troubles.items() if name == model and t.nodes]
        if not blamed:
            raise NoSuchName(
                f"cannot find an earlier log of {model}: none of its replicas ended since this control "
                "plane started",
                help="llmgw replicas",
            )
        return Target(max(blamed, key=lambda trouble: trouble.at).nodes[0], model, "", rank, previous=True)

    def _unknown(self, replica: str, rank: int) -> NoSuchName:
        ranks = sorted(key[1] for key in self._places if key[0] == replica)
        if ranks:
            return NoSuchName(
                f"cannot find rank {rank} of {replica}: it has {', '.join(map(str, ranks))}",
                help=f"llmgw logs {replica} --rank {ranks[-1]}",
            )
        names = sorted({key[0] for key in self._places})
        return NoSuchName(
            f"cannot find replica {replica}: none of this name ran since this control plane started",
            help=did_you_mean(replica, names) or "llmgw replicas",
        )

    # --- piece by piece -----------------------------------------------------------------------

    async def _logs(self, request: Request) -> Response:
        query = request.query
        rank, tail = _whole(query.get("rank", "0"), "rank"), query.get("tail", "100")
        lines = None if tail == "all" else min(_whole(tail, "tail"), MOST_LINES)
        # Who was cut off goes on where it was.
        offset = _whole(query["offset"], "offset", digits=18) if "offset" in query else None
        target = self.target(query.get("name", ""), rank, previous=query.get("previous") == "1")
        tail_of = lines if offset is None else None
        stream = self._lines(target, offset, tail_of, follow=query.get("follow") == "1")
        await anext(stream)
        return Response(200, stream, "application/x-ndjson")

    async def _lines(
        self, target: Target, offset: int | None, tail: int | None, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Nothing, once the first piece is here; then the lines. Raises Failed until then, and no more after it.

        Counted from before the first piece is asked for until it is closed: it has begun by then.
        """
        if self._streams >= STREAMS:
            raise Failed(f"cannot read another log: {STREAMS} are being read", help="end one that follows")
        self._streams += 1
        try:
            piece = await self._piece(target, offset, tail, 0.0)
            yield b""
            async with contextlib.aclosing(self._told(target, piece, follow=follow)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._streams -= 1

    async def _told(
        self, target: Target, piece: messages.LogPiece, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        end, told = piece.size, ""
        target = dataclasses.replace(target, replica=piece.replica, rank=piece.rank, previous=False)
        try:
            yield _line(replica=target.replica, rank=target.rank, node=self._loop.fleet.name(target.node))
            while True:
                if (said := _oddity(piece)) and (piece.lost or said != told):
                    yield _line(said=said)
                    told = said
                yield _line(next=piece.next, **({"data": piece.data} if piece.data else {}))
                if not piece.data and (not follow or piece.state in ("", "failed")):
                    if follow:
                        yield _line(said=self._ended(target))
                    return
                if not follow and piece.next >= end:
                    return
                piece = await self._piece(target, piece.next, None, WAIT if follow else 0.0)
        except Failed as failed:
            yield _line(error=failed.said)

    async def _piece(
        self, target: Target, offset: int | None, tail: int | None, wait: float
    ) -> messages.LogPiece:
        """The next piece. Raises Failed, in a sentence that names the node."""
        self._must_be_here(target)
        what = self._named(target)

        def make(epoch: int, seq: int) -> messages.Command:
            return messages.Logs(
                epoch=epoch,
                seq=seq,
                model=target.model,
                replica=target.replica,
                rank=target.rank,
                previous=target.previous,
                offset=offset,
                tail=tail,
                wait=wait,
            )

        node = self._loop.fleet.name(target.node)
        try:
            result = await self._asking.ask(target.node, make, wait + PATIENCE)
        except NoAnswer as none:
            raise Failed(f"cannot read the log of {what} on {node}: {none.said}") from none
        if not result.ok:
            raise Failed(f"cannot read the log of {what} on {node}: {result.said}")
        try:
            return messages.LogPiece.model_validate(result.data)
        except pydantic.ValidationError as error:
            first = error.errors()[0]["msg"].lower()
            raise Failed(
                f"cannot read the log of {what}: the answer of {node} makes no sense: {first}"
            ) from error

    def _must_be_here(self, target: Target) -> None:
        view = self._loop.view()
        if view.reachable(target.node):
            return
        known, name = view.fleet.nodes.get(target.node), view.fleet.name(target.node)
        since = f", it spoke last {show_seconds(view.now - known.last_seen)} ago" if known is not None else ""
        stands = view.standings.get(target.node, "not known any more")
        stands = "disconnected" if stands == "Ready" else stands
        raise Failed(
            f"cannot read the log of {self._named(target)}: node {name} is {stands}{since}",
            help=f"the file is in logs/ below the state directory of its agent on {name}",
        )

    def _named(self, target: Target) -> str:
        return f"rank {target.rank} of {target.replica or target.model}"

    def _ended(self, target: Target) -> str:
        shard = self._loop.fleet.shards.get((target.replica, target.rank))
        because = f": {shard.status.reason}" if shard is not None and shard.status.reason else ""
        return f"{self._named(target)} has ended{because}"


def _oddity(piece: messages.LogPiece) -> str:
    """What the reader must not take for silence."""
    if piece.lost:
        return f"{show_bytes(piece.lost)} of earlier output are gone: a log keeps its newest part"
    if not piece.missing:
        return ""
    if piece.state in ("assigned", "fetching", "held"):
        return f"there is no output yet: the shard is {piece.state}"
    return "its log is no longer there: earlier output is gone"


def _line(**what: object) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _whole(text: str, name: str, digits: int = 9) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise NoSuchName(f"cannot read {name}={text[:40]}: a whole number is needed")
    return int(text)
