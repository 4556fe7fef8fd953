"""From bytes to a revision that stands: validate, plan, compare, keep, adopt. The one path for all of them.

The API calls it for `plan` and `apply`, `watch` for what it followed. Whatever fails on the way changes
nothing: the revision that stood goes on standing.
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from llmgw.catalog.diagnostics import SHOWN, Invalid, concise, foremost
from llmgw.catalog.load import Cache, Checked, load_files
from llmgw.catalog.model import Catalog
from llmgw.control.expecting import Expecting, Past, Wish
from llmgw.control.journal import Journal
from llmgw.control.knowledge import Knowledge
from llmgw.control.loop import Loop
from llmgw.control.measuring import Measuring
from llmgw.control.recording import Recording
from llmgw.control.store import Revision, Store
from llmgw.engines.registry import ADAPTERS
from llmgw.errors import Blocked, CatalogInvalid, Failed
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.asking import Asked, Given, answer
from llmgw.planning.costs import Known, Seen
from llmgw.planning.desired import Desired
from llmgw.planning.fired import Allowed, options, refusal
from llmgw.planning.guards import Limits, takes_away
from llmgw.planning.judging import judged
from llmgw.planning.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Proposal:
    """A catalog somebody uploads: its files as they are, and where they come from."""

    files: Mapping[str, str]
    commit: str = ""
    who: str = ""
    message: str = ""


class Adoption:
    """Holds the number of the revision that stands; 0 before the first."""

    def __init__(
        self,
        store: Store,
        loop: Loop,
        journal: Journal,
        clock: Clock,
        chance: Chance,
        knowledge: Knowledge | None = None,
        *,
        limits: Limits | None = None,
        recording: Recording | None = None,
        measuring: Measuring | None = None,
        cluster: str = "",
    ) -> None:
        """`knowledge` looks into the models that are proposed; without it none is looked into.

        `limits` are those of the guards; `recording` writes down what each apply does;
        `measuring` knows what starts and fetches took.
        """
        self._store, self._loop, self._journal = store, loop, journal
        self._limits, self._recording, self._expecting = limits or Limits(), recording, Expecting()
        self._clock, self._chance, self._knowledge = clock, chance, knowledge
        self._measuring, self._cluster = measuring, cluster
        self.standing: Revision | None = None
        self._cache, self._reading = Cache(), asyncio.Lock()

    @property
    def number(self) -> int:
        return self.standing.number if self.standing is not None else 0

    @property
    def past(self) -> Sequence[Past]:
        """Every revision that is kept, oldest first."""
        return self._expecting.past

    @property
    def limits(self) -> Limits:
        """Those of the guards."""
        return self._limits

    @property
    def catalog(self) -> Catalog | None:
        """The catalog that stands; None before the first, and where the kept one no longer loads."""
        return self._loop.desired.catalog

    def resume(self) -> None:
        """Stand on the newest kept revision again, after a restart. One that no longer loads changes nothing."""
        newest = self._store.newest()
        self.standing = newest
        self._expecting.resume(self._store.kept())
        if newest is None:
            return
        try:
            self._stand(load_files(_bytes(newest.files)))
        except CatalogInvalid as invalid:
            self._journal.note(
                "alarm", "catalog", f"revision {newest.number} no longer loads: {invalid.said}"
            )

    async def plan(
        self,
        proposal: Proposal,
        asked: Asked | None = None,
        before: Mapping[str, str] | None = None,
        *,
        shown: bool = True,
    ) -> Plan:
        """What adopting it would do. `before` are the files of a catalog that waits already, to tell them apart.

        `shown` = somebody decides by this plan, and not by one that they saw before. Raises CatalogInvalid.
        """
        base = await self._load(before) if before is not None else None
        catalog = await self._load(proposal.files)
        warnings = await self.look_into(catalog)
        plan = dataclasses.replace(self.rehearse(catalog, asked, base), warnings=warnings)
        if shown and not plan.suppose:
            self._expecting.showed(plan)
        return plan

    async def apply(self, proposal: Proposal, wish: Wish) -> tuple[int, Plan]:
        """Adopt it if its plan is still what `wish` expects, or a part of that, and no guard refuses it.

        Returns the number of the revision that stands and the plan. What is adopted already stays
        under its number. Raises CatalogInvalid, Stale, or Blocked by a guard or where a newer control
        plane commands.
        """
        if self._loop.fenced:
            raise Blocked(f"cannot apply: nothing would follow from it. {self._loop.fenced}")
        catalog = await self._load(proposal.files)
        await self.look_into(catalog)
        # From here on nothing is awaited: what stands cannot change between the plan and the adoption.
        plan = self.rehearse(catalog)
        if (
            self.standing is not None
            and self.standing.digest == catalog.digest
            and self._loop.desired.catalog
        ):
            self._expecting.check_catalog(wish, catalog.digest)
            return self.standing.number, plan
        self._expecting.check(wish, plan, self._clock.wall())
        _check_guards(plan, wish.allowed)
        return self.adopt(catalog, proposal, plan, wish.allowed), plan

    def adopt(self, catalog: Catalog, proposal: Proposal, plan: Plan, allowed: Allowed = frozenset()) -> int:
        """Keep `proposal`, which is `catalog`, and let it stand. Returns its number."""
        revision = Revision(
            number=self.number + 1,
            files=dict(proposal.files),
            digest=catalog.digest,
            commit=proposal.commit,
            who=proposal.who,
            message=proposal.message,
            plan=plan.digest,
            at=self._clock.wall(),
        )
        self._store.add(revision)
        self.standing = revision
        self._expecting.adopted(revision)
        if self._recording is not None:
            self._recording.begin(revision, plan, allowed)
        self._stand(catalog)
        self._journal.note(
            "catalog", f"revision {revision.number}", f"adopted as {plan.id} by {revision.who or '?'}"
        )
        return revision.number

    async def _load(self, files: Mapping[str, str]) -> Catalog:
        """The catalog in `files`, read beside the loop: a large one takes seconds. Raises Invalid."""
        async with self._reading:
            checked = await asyncio.to_thread(self._checked, files, self.catalog)
        if checked.catalog is None:
            raise Invalid(checked.diagnostics)
        return checked.catalog

    def _checked(self, files: Mapping[str, str], standing: Catalog | None) -> Checked:
        checked = self._cache.check(_bytes(files))
        if checked.catalog is not None:
            _find_places(checked.catalog, standing)
        return checked

    async def look_into(self, catalog: Catalog) -> tuple[str, ...]:
        """What the files of new models say against their profiles: the foremost, one line each.

        Raises CatalogInvalid where its engine would refuse it.
        """
        if self._knowledge is None:
            return ()
        await self._knowledge.learn(catalog, self.catalog)
        problems = self._knowledge.problems(catalog, self.catalog)
        if any(problem.severity == "error" for problem in problems):
            raise Invalid(problems)
        shown, left = foremost(problems, SHOWN)
        return (*map(concise, shown), *([f"and {count(left, 'more warning')}"] if left else []))

    def rehearse(self, catalog: Catalog, asked: Asked | None = None, base: Catalog | None = None) -> Plan:
        """What adopting `catalog` would do to the fleet as it is now; `base` is what waits to be adopted already."""
        given, new = self.given(), self._desired(catalog)
        plan = answer(given, new, lambda: self._chance, command_line, asked, base)
        fired = judged(plan, given, new, self._limits, self._chance, asked)
        return dataclasses.replace(plan, guards=fired)

    def cannot_judge(self, catalog: Catalog) -> str:
        """Why nobody can say now what `catalog` would stop or replace; empty where that is known, or nothing."""
        view = self._loop.view()
        if not (view.unheard or view.dark) or not takes_away(self.catalog, catalog):
            return ""
        if view.dark:
            return "most nodes are silent"
        silent = len(view.unheard)
        return f"{count(silent, 'node')} {'has' if silent == 1 else 'have'} not spoken yet"

    def given(self) -> Given:
        """What a plan is made of now, beside the catalog that is proposed."""
        loop, knowledge, standing = self._loop, self._knowledge, self.standing
        facts, unread = (knowledge.known, knowledge.unread) if knowledge is not None else ({}, {})
        return Given(
            desired=loop.desired,
            fleet=loop.fleet,
            ledger=loop.ledger,
            now=self._clock.now(),
            timers=loop.timers,
            number=self.number,
            known=Known(facts, self._measuring.seen if self._measuring is not None else Seen(), unread),
            cluster=self._cluster,
            applied=_in_words(standing, self._clock.wall()) if standing is not None else "",
            board=loop.memory,
        )

    def _stand(self, catalog: Catalog) -> None:
        self._loop.adopt(self._desired(catalog))

    def _desired(self, catalog: Catalog) -> Desired:
        sizes = self._knowledge.sizes if self._knowledge is not None else {}
        return dataclasses.replace(self._loop.desired, catalog=catalog, sizes=sizes)


def _check_guards(plan: Plan, allowed: Allowed) -> None:
    """Raise Blocked unless exactly what the guards refuse is allowed."""
    lines = refusal(plan.guards, allowed)
    if not lines:
        return
    what = f": {lines[0]}" if len(lines) == 1 else f" for {len(lines)} reasons"
    details = "".join(f"\n  {line}" for line in lines) if len(lines) > 1 else ""
    raise Blocked(
        f"cannot apply {plan.id}{what}. Nothing was changed{details}",
        help=f"if it is meant: llmgw apply --expect {plan.id} {options(plan.guards)}".rstrip(),
    )


def _in_words(standing: Revision, now: datetime.datetime) -> str:
    """`revision 3 (8c01d77, 2h ago by ilker)`."""
    ago = f"{show_seconds(max(0.0, (now - standing.at).total_seconds()))} ago"
    by = f" by {standing.who}" if standing.who else ""
    return f"revision {standing.number} ({', '.join(filter(None, (standing.commit, ago)))}{by})"


def _bytes(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def _find_places(catalog: Catalog, standing: Catalog | None) -> None:
    """Look now for the places that a plan will show: each is another look into its file."""
    before = standing.models if standing is not None else {}
    for name, model in catalog.models.items():
        if before.get(name) != model:
            catalog.place(f"model/{name}")


def command_line(spec: ShardSpec) -> tuple[str, ...]:
    """The command line of a shard; what only its node knows is written in capitals.

    Empty where the engine cannot be run like this: the node says why when it is told to.
    """
    try:
        return ADAPTERS[spec.profile.engine].command(spec, "WEIGHTS", "PROGRAM").argv
    except Failed:
        return ()
