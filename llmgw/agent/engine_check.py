"""Running the engines' own version commands, because somebody meant to; and remembering what they said.

Built by `agent.serve` for the command `Check`; `remembered` is for every registration. A program that was
replaced since is one that nobody checked. What a check starts is marked and ended as a tree like an engine:
a wrapper may start a server instead of answering.
"""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
import re
from collections.abc import Iterable, Mapping

import pydantic

from llmgw.agent import logs, marks, process
from llmgw.agent.cgroups import Cgroups
from llmgw.agent.marks import Identity
from llmgw.agent.sweep import SweepTimers, Tree
from llmgw.engines.base import CommandLine, how_it_ended, last_error
from llmgw.engines.registry import ADAPTERS
from llmgw.errors import Failed
from llmgw.fleet.node import InstalledEngine
from llmgw.kit.files import read_regular, write_atomic
from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes, show_seconds

log = logging.getLogger(__name__)

LONGEST = 100
"""Characters of what is kept of an answer."""

MOST = 64
"""Programs that are remembered."""

OUTPUT = 16 << 20
"""Bytes of an answer: who writes more answers another question, onto the node's disk."""

LOOK = 0.05
"""Seconds between two looks at how much was written."""

_VERSION = re.compile(r"\d+(?:\.\w+)+(?:\+\w+)?|version:? *\S+", re.IGNORECASE)


class Checked(pydantic.BaseModel):
    """What a program said. `stamp` is the file it was; another one is another program."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    stamp: str
    works: bool
    said: str


class _Kept(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    programs: dict[str, Checked] = {}


class EngineCheck:
    """The checks of one node. `within` = seconds that one program may take."""

    def __init__(
        self,
        node: str,
        root: pathlib.Path,
        *,
        cgroups: Cgroups | None,
        inherited: Mapping[str, str],
        timers: SweepTimers,
        within: float,
    ) -> None:
        self._node, self._root, self._cgroups = node, root, cgroups
        self._inherited, self._timers, self._within = inherited, timers, within
        self._turn = asyncio.Lock()
        self._kept = self._read()

    def remembered(self, engines: Iterable[InstalledEngine]) -> tuple[InstalledEngine, ...]:
        """The engines with what a check of the very same program said. Waits for the mounts that those lie on."""
        return tuple(self._with(engine) for engine in engines)

    async def run(self, engines: Iterable[InstalledEngine]) -> tuple[InstalledEngine, ...]:
        """Check one after the other; what each said is kept, where the disk takes it. Raises Failed or OSError."""
        async with self._turn:
            for engine in engines:
                checked = await self._check(engine)
                programs = {**dict(list(self._kept.programs.items())[1 - MOST :]), engine.path: checked}
                self._kept = self._kept.model_copy(update={"programs": programs})
            with contextlib.suppress(OSError):  # it is in memory, and asked again after a restart
                write_atomic(self._path, self._kept.model_dump_json(indent=1).encode())
        return await asyncio.to_thread(self.remembered, engines)

    def _with(self, engine: InstalledEngine) -> InstalledEngine:
        checked = self._kept.programs.get(engine.path)
        if checked is None or checked.stamp != _stamp(engine.path):
            return engine
        return dataclasses.replace(engine, works=checked.works, checked=checked.said)

    # --- one program --------------------------------------------------------------------------

    async def _check(self, engine: InstalledEngine) -> Checked:
        stamp, cookie = await asyncio.to_thread(_stamp, engine.path), marks.new_cookie()
        output = self._root / f"check-{engine.name}.out"
        output.unlink(missing_ok=True)
        group = self._cgroups.make(cookie) if self._cgroups is not None else ""
        line = CommandLine(ADAPTERS[engine.name].version(engine.path))
        mark = marks.environment(self._node, (f"check/{engine.name}", 0), cookie)
        env = process.environment(self._inherited, line, mark, ())
        directory = str(self._cgroups.directory(group)) if self._cgroups is not None and group else ""
        try:
            leader = process.launch(line, env, Identity(cookie, group), output, directory)
        except OSError as error:
            return Checked(stamp=stamp, works=False, said=f"cannot be run: {error.strerror or error}")
        tree = Tree(leader.identity, self._cgroups, leader)
        code, wrong = None, ""
        try:
            async with asyncio.timeout(self._within):
                code = await _answered(leader, output)
        except TimeoutError:
            wrong = f"no answer within {show_seconds(self._within)}"
        except Failed as failed:
            wrong = str(failed)
        finally:
            await tree.sweep(self._timers, _no_card, log.error)
        said = logs.tail(output)
        output.unlink(missing_ok=True)
        if wrong:
            return Checked(stamp=stamp, works=False, said=wrong)
        return Checked(stamp=stamp, works=code == 0, said=_answer(code, said))

    # --- what is kept -------------------------------------------------------------------------

    @property
    def _path(self) -> pathlib.Path:
        return self._root / "checks.json"

    def _read(self) -> _Kept:
        try:
            return _Kept.model_validate_json(read_regular(self._path))
        except (OSError, pydantic.ValidationError):  # nobody checked anything, then
            return _Kept()


async def _answered(leader: process.Leader, output: pathlib.Path) -> int | None:
    """The exit status. Raises Failed when it writes too much before."""
    ended = asyncio.ensure_future(leader.ended())
    try:
        while True:
            done, _ = await asyncio.wait((ended,), timeout=LOOK)
            _check_length(output)
            if done:
                return await ended
    finally:
        ended.cancel()


def _check_length(output: pathlib.Path) -> None:
    if output.stat().st_size > OUTPUT:
        raise Failed(f"it wrote more than {show_bytes(OUTPUT)} instead of its version")


def _answer(code: int | None, said: str) -> str:
    """The version out of an answer, or why there is none; at most `LONGEST` characters."""
    if code != 0:
        because = last_error(said)
        return safe(f"{how_it_ended(code)}: {because}" if because else how_it_ended(code))[:LONGEST]
    found = _VERSION.search(said)
    return safe(found.group() if found else said.strip().partition("\n")[0])[:LONGEST]


def _stamp(path: str) -> str:
    """Which file it is, by its last change and size; empty where there is none."""
    try:
        found = pathlib.Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}"


async def _no_card(_: frozenset[int]) -> str:
    return ""
