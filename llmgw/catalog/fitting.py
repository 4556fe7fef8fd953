"""One model on one profile, and what would do where it does not fit: the value behind `llmgw fit`.

Called by the verb with facts it read; pure. Sizes in bytes.
"""

import dataclasses

from llmgw.catalog.divisibility import findings
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.memory import Estimate, estimate, physical
from llmgw.catalog.model import Catalog, Profile
from llmgw.catalog.rules import Finding


@dataclasses.dataclass(frozen=True, slots=True)
class Other:
    """Another profile of the catalog on which the same model fits, with how many sequences at a time."""

    name: str
    concurrency: float


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """The answer. `estimate` is None where the facts do not say enough for one."""

    profile: Profile
    findings: tuple[Finding, ...]
    estimate: Estimate | None
    others: tuple[Other, ...] = ()

    @property
    def refused(self) -> tuple[Finding, ...]:
        """What the engine would refuse before it looks at memory."""
        return tuple(finding for finding in self.findings if not finding.warning)

    @property
    def fits(self) -> bool:
        return not self.refused and self.estimate is not None and self.estimate.fits


def card_of(profile: Profile, asked: int = 0) -> int:
    """Memory of the card that is meant, or booked on CPU; 0 where nothing says."""
    if not profile.gpus_per_node:
        return asked or profile.cpu_memory
    return physical(asked or profile.gpu_memory)


def fit(catalog: Catalog, profile: Profile, facts: ModelFacts, asked: int = 0) -> Fit:
    """Whether the model fits on `profile`, on a card of `asked` bytes or else the one that it names."""
    found = Fit(profile, tuple(findings(facts, profile)), estimate(facts, profile, card_of(profile, asked)))
    if found.fits:
        return found
    return dataclasses.replace(found, others=_others(catalog, profile, facts, asked))


def _others(catalog: Catalog, wanted: Profile, facts: ModelFacts, asked: int) -> tuple[Other, ...]:
    """Profiles that would do for as long a context, those with the fewest GPUs first."""
    found = []
    for profile in sorted(
        catalog.profiles.values(), key=lambda each: (each.nodes * each.gpus_per_node, each.name)
    ):
        as_long = dataclasses.replace(profile, max_model_len=wanted.max_model_len or profile.max_model_len)
        card = card_of(profile) or card_of(profile, asked)
        answer = estimate(facts, as_long, card) if profile.name != wanted.name and card else None
        if (
            answer is not None
            and answer.fits
            and not Fit(as_long, tuple(findings(facts, as_long)), answer).refused
        ):
            found.append(Other(profile.name, answer.concurrency))
    return tuple(found)
