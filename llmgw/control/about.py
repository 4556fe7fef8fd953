"""What people ask about the fleet beside its rows: why, which releases, what is wrong, names for completion.

Routes of the API, passed to it by `serve`. Everything is read from what stands; nothing changes.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import pydantic

from llmgw.catalog.load import load_files
from llmgw.catalog.suggest import did_you_mean
from llmgw.control.adoption import Adoption
from llmgw.control.api import Routes
from llmgw.control.journal import Journal
from llmgw.control.knowledge import Knowledge
from llmgw.control.loop import Loop
from llmgw.control.names import NoSuchName
from llmgw.control.store import Revision, Store
from llmgw.errors import CatalogInvalid, Failed
from llmgw.kit.clock import Clock
from llmgw.planning import screen
from llmgw.planning.ledger import Trouble
from llmgw.planning.reasons import felt, recovered
from llmgw.planning.view import View
from llmgw.planning.why import Why, why_model, why_replica
from llmgw.planning.why_gateway import why_gateway
from llmgw.planning.why_node import why_node
from llmgw.transport.http import Request, Response
from llmgw.wire import messages

MOST_NAMES = 5000
LOOKED_BACK = 50
"""Revisions that are looked through for a name that is gone, and how many of them are read whole."""
READ_WHOLE = 5

_WHY = pydantic.TypeAdapter(list[Why])


class About:
    """Answers from the loop's present state."""

    def __init__(
        self,
        loop: Loop,
        adoption: Adoption,
        store: Store,
        journal: Journal,
        knowledge: Knowledge,
        clock: Clock,
        *,
        about: Mapping[str, Any],
        followed: Callable[[], Mapping[str, Any] | None],
        files: Callable[[], str] = str,
    ) -> None:
        """`about` are the cluster's name and this control plane's release; `files` says what too few open files
        are allowed for, or nothing.
        """
        self._loop, self._adoption, self._store = loop, adoption, store
        self._journal, self._knowledge, self._clock = journal, knowledge, clock
        self._about, self._followed, self._files = about, followed, files
        self._builds: dict[str, str] = {}

    @property
    def routes(self) -> Routes:
        return {
            ("GET", "/v1/names"): self._names,
            ("GET", "/v1/versions"): self._versions,
            ("GET", "/v1/doctor"): self._doctor,
            ("GET", "/v1/why"): self._why,
        }

    def met(self, gateway: str, message: messages.Subscribe) -> None:
        """A gateway said of which release it is."""
        known = self._loop.fleet.gateways.keys() | {gateway}
        self._builds = {name: build for name, build in self._builds.items() if name in known}
        self._builds[gateway] = message.build

    # --- names --------------------------------------------------------------------------------

    async def _names(self, _: Request) -> Response:
        view = self._loop.view()
        models = screen.model_rows(view)[:MOST_NAMES]
        standing = self._adoption.standing
        plans = (
            {f"p-{standing.plan[:6]}": f"revision {standing.number}"} if standing and standing.plan else {}
        )
        nodes = {view.fleet.name(node): stands for node, stands in list(view.standings.items())[:MOST_NAMES]}
        replicas = {
            name: screen.replica_state(view, replica)[0]
            for name, replica in sorted(view.replicas.items())[:MOST_NAMES]
        }
        return _json(
            {
                "cluster": self._about["cluster"],
                "models": {row.model: f"ready {row.ready}/{row.wanted}" for row in models},
                "aliases": {alias: f"alias of {row.model}" for row in models for alias in row.aliases},
                "nodes": nodes,
                "replicas": replicas,
                "gateways": {
                    name: "silent" if view.silent(name) else "speaks"
                    for name in sorted(view.fleet.gateways)[:MOST_NAMES]
                },
                "plans": plans,
            }
        )

    # --- releases -----------------------------------------------------------------------------

    async def _versions(self, _: Request) -> Response:
        return _json(self._releases(self._loop.view()))

    def _releases(self, view: View) -> dict[str, Any]:
        return {
            **self._about,
            "protocol": messages.PROTOCOL,
            "agents": [
                {
                    "name": view.fleet.name(name),
                    "id": name,
                    "state": stands,
                    "build": known.info.build if (known := view.fleet.nodes.get(name)) is not None else "",
                    "protocol": known.info.protocol if known is not None else None,
                }
                for name, stands in view.standings.items()
            ],
            "gateways": [
                {"name": name, "build": self._builds.get(name, ""), "seen": view.now - gateway.last_seen}
                for name, gateway in sorted(view.fleet.gateways.items())
            ],
        }

    # --- what is wrong ------------------------------------------------------------------------

    async def _doctor(self, _: Request) -> Response:
        view, root = self._loop.view(), self._store.root
        disk = await asyncio.to_thread(_room, root)
        rows = pydantic.TypeAdapter(tuple[screen.NodeRow, ...])
        return _json(
            {
                **self._releases(view),
                "wall": self._clock.wall().isoformat(),
                "state_dir": str(root),
                "disk": disk,
                "files": self._files(),
                "revision": self._adoption.number,
                "loads": view.desired.catalog is not None,
                "followed": self._followed(),
                "fenced": self._loop.fenced,
                "alarms": self._loop.alarms,
                "silent_after": view.timers.gateway_silent,
                "nodes": rows.dump_python(screen.node_rows(view), mode="json"),
                "cards": _withdrawn(view),
                "engines": _missing_engines(view),
                "unplaced": [item.model for item in self._loop.unplaced if not item.stay],
                "failing": [_failure(model, trouble) for model, _, trouble in felt(view)],
                "recovered": [
                    {**_failure(model, trouble), "ago": max(0.0, view.now - trouble.at)}
                    for (model, _), trouble in sorted(view.ledger.troubles.items())
                    if recovered(view, model)
                ],
            }
        )

    # --- why ----------------------------------------------------------------------------------

    async def _why(self, request: Request) -> Response:
        name = request.query.get("name", "")
        answers = self._answers(name)
        if not answers:
            raise await self._nobody(name)
        return Response(200, _WHY.dump_json(answers))

    def _answers(self, name: str) -> list[Why]:
        """Everything that has this name: a model by its name or alias, a replica, nodes, a gateway."""
        view, unplaced = self._loop.view(), self._loop.unplaced
        found: list[Why] = []
        models = view.desired.catalog.models if view.desired.catalog is not None else {}
        meant = name if name in models else next((m.name for m in models.values() if name in m.aliases), "")
        if meant:
            facts = self._knowledge.known.get(models[meant].cache_name)
            found.append(why_model(view, unplaced, meant, facts))
        if name in view.replicas:
            found.append(why_replica(view, name))
        nodes = [node for node in view.standings if name in (node, view.fleet.name(node))]
        found += [why_node(view, unplaced, node) for node in nodes]
        return found + ([why_gateway(view, name)] if name in view.fleet.gateways else [])

    async def _nobody(self, name: str) -> NoSuchName:
        """Why nothing has this name: who removed it, what became of it, what is near."""
        view = self._loop.view()
        last = next((e for e in reversed(self._journal.after(0)) if e.about == name), None)
        removed = await asyncio.to_thread(self._removed, name) if "/" not in name else ""
        ended = f"; the last word about it was: {last.said}" if last is not None else ""
        models = screen.model_rows(view)
        names = {row.model for row in models} | {alias for row in models for alias in row.aliases}
        names |= view.replicas.keys() | {view.fleet.name(node) for node in view.standings}
        names |= view.fleet.gateways.keys()
        said = f"cannot say why {name[:200]!r} is: no model, alias, replica, node or gateway has this name"
        if last is not None and last.kind == "shard":  # its log outlives it
            return NoSuchName(f"{said}{ended}", help=f"llmgw logs {name}")
        return NoSuchName(
            f"{said}{removed}{ended}",
            help=did_you_mean(name, names) or "llmgw models, llmgw replicas and llmgw nodes list them",
        )

    def _removed(self, name: str) -> str:
        """Which revision took the name out of the catalog, or nothing where none that is kept did."""
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        after: Revision | None = None
        read = 0
        for number in reversed(self._store.revisions()[-LOOKED_BACK:]):
            try:
                revision = self._store.revision(number)
            except (Failed, OSError, ValueError):
                return ""
            if any(word.search(text) for text in revision.files.values()):
                read += 1
                if after is not None and _has(revision, name):
                    commit = f", commit {after.commit}" if after.commit else ""
                    by = f"{after.who or '?'} at {after.at:%Y-%m-%d %H:%M}Z{commit}"
                    return f"; revision {after.number} removed it, by {by}"
                if read >= READ_WHOLE:
                    return ""
            after = revision
        return ""


def _failure(model: str, trouble: Trouble) -> dict[str, Any]:
    return {
        "model": model,
        "failures": trouble.failures,
        "reason": trouble.reason,
        "said": trouble.said,
    }


def _has(revision: Revision, name: str) -> bool:
    try:
        catalog = load_files({path: text.encode() for path, text in revision.files.items()})
    except CatalogInvalid:
        return False
    return name in catalog.models or any(name in model.aliases for model in catalog.models.values())


def _room(root: os.PathLike[str]) -> dict[str, int] | None:
    """Bytes of the disk below the state directory."""
    try:
        usage = shutil.disk_usage(root)
    except OSError:
        return None
    return {"free": usage.free, "total": usage.total}


def _withdrawn(view: View) -> list[dict[str, str]]:
    """Cards that take nothing."""
    return [
        {"node": node.info.name, "gpu": gpu.uuid, "said": gpu.said}
        for node in view.fleet.nodes.values()
        for gpu in node.info.gpus or ()
        if not gpu.healthy
    ]


def _missing_engines(view: View) -> list[dict[str, Any]]:
    """Engines that a profile in use asks for and no node has. A node that reports none is no proof."""
    catalog = view.desired.catalog
    told = [node.info.engines for node in view.fleet.nodes.values()]
    if catalog is None or not told or None in told:
        return []
    there = {engine.name for engines in told for engine in engines or ()}
    used = sorted({profile for model in catalog.models.values() for profile in model.profiles})
    return [
        {"profile": name, "engine": catalog.profiles[name].engine}
        for name in used
        if name in catalog.profiles and catalog.profiles[name].engine not in there
    ]


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode())
