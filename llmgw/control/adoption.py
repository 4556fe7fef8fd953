"""From bytes to a revision that stands: validate, plan, compare, keep, adopt. The one path for all of them.

The API calls it for `plan` and `apply`, `watch` for what it followed. Whatever fails on the way changes
nothing: the revision that stood goes on standing.
"""

import asyncio
import dataclasses
from collections.abc import Mapping

from llmgw.catalog.diagnostics import Invalid, concise
from llmgw.catalog.load import Cache, Checked, load_files
from llmgw.catalog.model import Catalog
from llmgw.control.journal import Journal
from llmgw.control.knowledge import Knowledge
from llmgw.control.loop import Loop
from llmgw.control.store import Revision, Store
from llmgw.engines.registry import ADAPTERS
from llmgw.errors import Blocked, CatalogInvalid, Failed, Stale
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.planning.desired import Desired
from llmgw.planning.plan import Plan, make_plan


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
    ) -> None:
        """`knowledge` looks into the models that are proposed; without it none is looked into."""
        self._store, self._loop, self._journal = store, loop, journal
        self._clock, self._chance, self._knowledge = clock, chance, knowledge
        self.standing: Revision | None = None
        self._cache, self._reading = Cache(), asyncio.Lock()

    @property
    def number(self) -> int:
        return self.standing.number if self.standing is not None else 0

    @property
    def catalog(self) -> Catalog | None:
        """The catalog that stands; None before the first, and where the kept one no longer loads."""
        return self._loop.desired.catalog

    def resume(self) -> None:
        """Stand on the newest kept revision again, after a restart. One that no longer loads changes nothing."""
        newest = self._store.newest()
        self.standing = newest
        if newest is None:
            return
        try:
            self._stand(load_files(_bytes(newest.files)))
        except CatalogInvalid as invalid:
            self._journal.note(
                "alarm", "catalog", f"revision {newest.number} no longer loads: {invalid.said}"
            )

    async def plan(self, proposal: Proposal) -> Plan:
        """What adopting it would do. Raises CatalogInvalid."""
        catalog = await self._load(proposal.files)
        warnings = await self.look_into(catalog)
        return dataclasses.replace(self.rehearse(catalog), warnings=warnings)

    async def apply(self, proposal: Proposal, expect: str) -> tuple[int, Plan]:
        """Adopt it if its plan is still `expect` (a full digest; empty = whatever it is now).

        Returns the number of the revision that stands and the plan. What is adopted already stays
        under its number. Raises CatalogInvalid, Stale, or Blocked where a newer control plane commands.
        """
        if self._loop.fenced:
            raise Blocked(f"cannot apply: nothing would follow from it. {self._loop.fenced}")
        catalog = await self._load(proposal.files)
        await self.look_into(catalog)
        # From here on nothing is awaited: what stands cannot change between the plan and the adoption.
        plan = self.rehearse(catalog)
        if expect and plan.digest != expect:
            raise Stale(
                f"cannot apply p-{expect[:6]}: the plan is now {plan.id}. Nothing was changed",
                help="look at it again with `llmgw plan`",
            )
        if (
            self.standing is not None
            and self.standing.digest == catalog.digest
            and self._loop.desired.catalog
        ):
            return self.standing.number, plan
        return self.adopt(catalog, proposal, plan), plan

    def adopt(self, catalog: Catalog, proposal: Proposal, plan: Plan) -> int:
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
        """What the files of a new model say against its profile, one line each.

        Raises CatalogInvalid where its engine would refuse it.
        """
        if self._knowledge is None:
            return ()
        await self._knowledge.learn(catalog, self.catalog)
        problems = self._knowledge.problems(catalog, self.catalog)
        if any(problem.severity == "error" for problem in problems):
            raise Invalid(problems)
        return tuple(concise(problem) for problem in problems)

    def rehearse(self, catalog: Catalog) -> Plan:
        """What adopting `catalog` would do to the fleet as it is now."""
        loop = self._loop
        return make_plan(
            loop.desired,
            self._desired(catalog),
            loop.fleet,
            loop.ledger,
            self._clock.now(),
            self._chance,
            loop.timers,
            base=self.number,
            command=_command,
        )

    def _stand(self, catalog: Catalog) -> None:
        self._loop.adopt(self._desired(catalog))

    def _desired(self, catalog: Catalog) -> Desired:
        sizes = self._knowledge.sizes if self._knowledge is not None else {}
        return dataclasses.replace(self._loop.desired, catalog=catalog, sizes=sizes)


def _bytes(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def _find_places(catalog: Catalog, standing: Catalog | None) -> None:
    """Look now for the places that a plan will show: each is another look into its file."""
    before = standing.models if standing is not None else {}
    for name, model in catalog.models.items():
        if before.get(name) != model:
            catalog.place(f"model/{name}")


def _command(spec: ShardSpec) -> tuple[str, ...]:
    """The command line of a shard; what only its node knows is written in capitals.

    Empty where the engine cannot be run like this: the node says why when it is told to.
    """
    try:
        return ADAPTERS[spec.profile.engine].command(spec, "WEIGHTS", "PROGRAM").argv
    except Failed:
        return ()
