"""The second layer of checks: a catalog against what its models' files say. All problems, each with its place.

Called by `control.adoption` with the facts that were read; a model without facts has no problem here.

    E501-E514, W508, W512, W513   rules D1-D14: see `divisibility`
    W520                          the smallest card that a profile permits (or the memory it books) is too small
"""

from collections.abc import Iterator, Mapping

from llmgw.catalog.diagnostics import Diagnostic, Related, Spot, ordered
from llmgw.catalog.divisibility import findings
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.memory import estimate, physical
from llmgw.catalog.model import Catalog, Model, Place, Profile
from llmgw.catalog.resolve import Places
from llmgw.catalog.rules import TENSOR
from llmgw.kit.units import show_memory


def model_problems(catalog: Catalog, facts: Mapping[str, ModelFacts]) -> list[Diagnostic]:
    """Every problem of every model in `catalog` of which `facts` (by cache name) are known."""
    return ordered(
        problem
        for model in catalog.models.values()
        if (known := facts.get(model.cache_name)) is not None
        for name in model.profiles
        for problem in _problems(catalog, model, catalog.profiles[name], known)
    )


def _problems(catalog: Catalog, model: Model, profile: Profile, facts: ModelFacts) -> Iterator[Diagnostic]:
    where = f"profile/{profile.name}"
    asked = Related(_spot(catalog, f"model/{model.name}", "source"), f"{model.name} is the model")
    for finding in findings(facts, profile):
        cannot = "" if finding.warning else f"{profile.engine} cannot run "
        said = f"{cannot}{model.name}{' like this' if cannot else ''}: {finding.said}"
        yield Diagnostic(finding.code, said, _degree(catalog, where, finding.field), finding.help, (asked,))
    short = _shortage(facts, profile)
    if short:
        field = "gpu" if profile.gpus_per_node else "cpu"
        yield Diagnostic("W520", f"{model.name}: {short}", _spot(catalog, where, field), related=(asked,))


def _shortage(facts: ModelFacts, profile: Profile) -> str:
    """What is missing on the smallest card that the profile permits, or nothing."""
    card = physical(profile.gpu_memory) if profile.gpus_per_node else profile.cpu_memory
    found = estimate(facts, profile, card) if card else None
    if found is None or found.fits:
        return ""
    what = "each card" if profile.gpus_per_node else "the booked memory"
    return (
        f"{show_memory(found.short)} short of one sequence of {found.length} tokens on {what}"
        f" of {show_memory(card)} (estimated; see llmgw fit)"
    )


def _degree(catalog: Catalog, where: str, field: str) -> Spot:
    """The field, or the number of GPUs that it follows from where it was left out."""
    written = field if (where, field) in catalog.places else "gpus_per_node"
    return _spot(catalog, where, written if field == TENSOR else field)


def _spot(catalog: Catalog, what: str, field: str) -> Spot:
    if isinstance(catalog.places, Places):
        return catalog.places.spot(what, field)
    return Spot(catalog.place(what, field) or Place(what))
