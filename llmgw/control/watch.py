"""Following a catalog: look, let it settle, judge, adopt or hold. The edge around `settling` and `holding`.

`serve` runs one `Watch` where a catalog is followed. Events of the file system only say that something
happened, and every one can go missing: each of them, and a slow timer, leads to the same look at the
whole. There is one look at a time, so there is one adoption at a time, and the newest tree wins.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from llmgw.catalog.diagnostics import Invalid, concise, summary
from llmgw.catalog.load import Cache, Checked
from llmgw.catalog.model import Catalog
from llmgw.control import holding
from llmgw.control.adoption import Adoption, Proposal
from llmgw.control.holding import Followed, Refused, Rules, Same, Valid
from llmgw.control.journal import Journal
from llmgw.control.listening import Listening
from llmgw.control.settling import Pace, Settling
from llmgw.control.store import Store
from llmgw.control.trees import Spot, Tree, Unreadable
from llmgw.errors import Failed
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where the catalog is followed; called from a thread, one call at a time."""

    @property
    def said(self) -> str:
        """What is followed, in a few words."""
        ...

    def look(self) -> Tree:
        """What is there now. Raises Unreadable."""
        ...

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of the tree of the last look. Raises Unreadable."""
        ...

    def spots(self) -> frozenset[Spot]:
        """Where to listen for changes."""
        ...

    def dirty(self) -> tuple[str, ...]:
        """Files that stand otherwise than they are followed. Raises Unreadable."""
        ...


class Watch:
    """Follows one catalog. What was judged is on disk before anything is said about it."""

    def __init__(
        self,
        source: Source,
        rules: Rules,
        pace: Pace,
        adoption: Adoption,
        store: Store,
        journal: Journal,
        clock: Clock,
        *,
        held: Callable[[], object] = lambda: None,
    ) -> None:
        """`held` says who holds the switch; while somebody does, nothing new is judged or adopted."""
        self._source, self._rules, self._pace, self._held = source, rules, pace, held
        self._adoption, self._store, self._journal, self._clock = adoption, store, journal, clock
        self._cache = Cache()
        self._followed = store.followed()
        self._tree: Tree | None = None
        self._dirty: tuple[str, ...] = ()
        self._waits: tuple[str, str] = ("", "")
        self._settling = Settling()
        self._news = asyncio.Event()

    async def run(self, tasks: Tasks) -> None:
        """Follow until cancelled. Its listeners are tasks of `tasks`."""
        listening = Listening(tasks, self._news.set)
        try:
            while True:
                self._news.clear()
                began = self._clock.now()
                new = False
                with contextlib.suppress(OSError):  # no thread: the look says so
                    new = listening.at(await asyncio.to_thread(self._source.spots))
                next_look = await self._look_safely()
                soon = self._clock.now() + self._pace.settle
                await self._rest(min(next_look, soon) if new else next_look, self._clock.now() - began)
        finally:
            listening.close()

    def look_now(self) -> None:
        """Something changed that no file tells: look at once."""
        self._news.set()

    async def _look_safely(self) -> float:
        """A look that could not be kept changed nothing, and is taken again."""
        try:
            return await self.look()
        except OSError as error:
            said = (
                f"cannot keep what became of it: {error.strerror}: {error.filename}"
                if error.filename
                else f"cannot look at it: {error.strerror}"
            )
        except Failed as failed:
            said = failed.said
        self._journal.note("alarm", "catalog", said)
        log.error("catalog: %s", said)
        return self._clock.now() + self._pace.rescan

    async def look(self) -> float:
        """One look at the whole, and what follows from it. Returns the time of the next one.

        Raises OSError or Failed where the disk refuses.
        """
        next_look = await self._look()
        try:
            self._dirty = await asyncio.to_thread(self._source.dirty)
        except Unreadable:
            self._dirty = ()
        return next_look

    async def _look(self) -> float:
        now = self._clock.now()
        seen = await self._see()
        self._tree = seen if isinstance(seen, Tree) else None
        mark, locked = (seen.mark, bool(seen.locked)) if isinstance(seen, Tree) else ("", False)
        self._settling = self._settling.saw(mark, now)
        if isinstance(seen, Tree) and self._is_judged(seen):
            self._keep(dataclasses.replace(self._current(), commit=seen.commit, blind=None))
        elif not self._follows(seen) and not self._settling.settled(now, self._pace, locked=locked):
            if isinstance(seen, Tree) and not locked:
                await asyncio.to_thread(self._read_ahead, seen)
            return min(self._settling.look_at(now, self._pace), now + self._pace.rescan)
        elif isinstance(seen, Tree) and self._held() is None:
            await self._judge(seen)
        elif isinstance(seen, Tree):
            return now + self._pace.rescan
        else:
            self._blinded(seen)
        return self._clock.now() + self._pace.rescan

    def _follows(self, seen: Tree | Unreadable) -> bool:
        """Whether it is a commit on top of the one judged last: nobody writes at it any more."""
        return isinstance(seen, Tree) and bool(seen.commit) and self._followed.commit in seen.parents

    async def _see(self) -> Tree | Unreadable:
        try:
            return await asyncio.to_thread(self._source.look)
        except Unreadable as unreadable:
            return unreadable

    def report(self) -> dict[str, Any]:
        """What is followed and what became of it, for the API."""
        followed, tree, now = self._current(), self._tree, self._clock.wall()

        def aged(part: Any) -> dict[str, Any] | None:
            if part is None:
                return None
            known = dataclasses.asdict(part)
            return {**known, "since": part.since.isoformat(), "age": (now - part.since).total_seconds()}

        return {
            "said": self._source.said,
            "watch": self._rules.watch,
            "sync": self._rules.sync,
            "tree": followed.name,
            "judged": tree is not None and self._is_judged(tree),
            "hold": aged(followed.hold),
            "blind": aged(followed.blind),
            "busy": (tree.locked if tree is not None else "") or self._waits[1] or self._behind_a_hold(),
            "dirty": list(self._dirty) if tree is not None else [],
        }

    def _behind_a_hold(self) -> str:
        """That something newer was seen and is not looked into, where somebody holds the switch."""
        tree = self._tree
        if tree is None or self._held() is None or self._is_judged(tree):
            return ""
        return f"{tree.commit or tree.mark[:12]} is there, and is looked into once the hold is released"

    def _is_judged(self, tree: Tree) -> bool:
        """Whether it is known what becomes of this very tree."""
        return holding.judged(self._followed, tree.mark, self._rules, self._stands)

    @property
    def _stands(self) -> str:
        """The digest of the revision that stands; empty before the first."""
        return self._adoption.standing.digest if self._adoption.standing is not None else ""

    def _current(self) -> Followed:
        """What is kept, seen against the revision that stands now."""
        standing = self._adoption.standing
        if standing is None:
            return self._followed
        by = f"revision {standing.number} by {standing.who or '?'}"
        return holding.again(self._followed, standing.digest, by, self._clock.wall())

    def _read_ahead(self, tree: Tree) -> None:
        """Have its documents read while it settles; nothing follows from what they say."""
        try:
            self._cache.check(self._source.read(tree))
        except Unreadable:
            return

    async def _judge(self, tree: Tree) -> None:
        try:
            files = await asyncio.to_thread(self._source.read, tree)
        except Unreadable as unreadable:
            self._blinded(unreadable)
            return
        checked = await self._looked_into(await asyncio.to_thread(self._cache.check, files))
        # From here on nothing is awaited: what stands cannot change between the plan and the adoption, and
        # whoever was told meanwhile that it is held was told the truth.
        if self._held() is not None:
            return
        found: Refused | Same | Valid
        if checked.catalog is not None and self._must_wait(tree, checked.catalog):
            return
        if checked.catalog is None:
            errors = [item for item in checked.diagnostics if item.severity == "error"]
            found = Refused(summary(checked.diagnostics), holding.shortened(errors, concise))
        else:
            proposal = _proposal(tree, files)
            found = self._weigh(checked.catalog, proposal)
        verdict = holding.judge(
            self._current(), tree.mark, tree.commit, found, self._rules, self._stands, self._clock.wall()
        )
        if verdict.adopt and checked.catalog is not None and isinstance(found, Valid):
            self._adoption.adopt(checked.catalog, proposal, found.plan)
        self._keep(verdict.followed)

    def _must_wait(self, tree: Tree, catalog: Catalog) -> bool:
        """Whether nobody knows yet what `catalog` would stop: it is not judged, and what was held still is."""
        same = catalog.digest == self._stands and self._adoption.catalog is not None
        said = "" if same else self._adoption.cannot_judge(catalog)
        if said and self._waits[0] != tree.mark:
            name = tree.commit or tree.mark[:12]
            self._journal.note("catalog", f"catalog {name}", f"is not judged yet: {said}")
        self._waits = (tree.mark, said) if said else ("", "")
        return bool(said)

    async def _looked_into(self, checked: Checked) -> Checked:
        """`checked`, refused where the files of its models say that their engine would."""
        if checked.catalog is not None:
            try:
                await self._adoption.look_into(checked.catalog)
            except Invalid as invalid:
                return Checked(None, invalid.diagnostics)
        return checked

    def _weigh(self, catalog: Catalog, proposal: Proposal) -> Same | Valid:
        standing, old = self._adoption.standing, self._adoption.catalog
        if old is not None and old.digest == catalog.digest:
            return Same(catalog.digest)
        plan = self._adoption.rehearse(catalog)
        was = standing.files if standing is not None else {}
        return Valid(
            catalog.digest,
            plan,
            holding.given_up(old, catalog),
            holding.cut_short(old, was, catalog, proposal.files),
        )

    def _blinded(self, unreadable: Unreadable) -> None:
        now = self._clock.wall()
        self._keep(holding.blinded(self._current(), unreadable.said, unreadable.help, now))

    def _keep(self, followed: Followed) -> None:
        """Remember `followed` over a restart, and say what is new about it."""
        before = self._followed
        if followed == before:
            return
        self._store.save_followed(followed)
        self._followed = followed
        for kind, said in holding.news(before, followed):
            about = f"catalog {followed.name}".rstrip()
            self._journal.note(kind, about, said)
            log.log(logging.WARNING if kind == "alarm" else logging.INFO, "%s: %s", about, said)

    async def _rest(self, until: float, took: float) -> None:
        """Until the next look: at least as long as the last one took, so that bursts leave us half a core."""
        await asyncio.sleep(min(took, self._pace.settle))
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.now())):
                await self._news.wait()
        except TimeoutError:
            return


def _proposal(tree: Tree, files: Mapping[str, bytes]) -> Proposal:
    texts = {name: data.decode() for name, data in files.items()}
    return Proposal(texts, tree.commit, f"{tree.who} (watch)".lstrip(), tree.message)
