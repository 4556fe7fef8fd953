"""The guards: what a plan may not do unless a person allows exactly that. Pure.

`control.adoption` asks them of every plan, so that `plan`, `apply` and a catalog that is followed get one
answer. A guard counts what the plan would really do, says it with the limit, and names its way out.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from llmgw.catalog.model import Catalog, Model
from llmgw.kit.text import count
from llmgw.planning.fired import Fired
from llmgw.planning.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """From where on the guard of the mass stop fires: above `share` of what is ready, and `least` at least.

    `places` says in which line of which file a limit is set; it is no key of a limit at its default.
    """

    share: float = 0.3
    least: int = 3
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the fleet: the replicas that clients are sent to, and whether everybody has spoken."""

    serving: frozenset[str] = frozenset()
    heard: bool = True


def fired(plan: Plan, old: Catalog | None, new: Catalog, limits: Limits, seen: Seen) -> tuple[Fired, ...]:
    """The guards that refuse `plan`, which leads from `old` to `new`."""
    return (
        *_mass_stop(plan, old, new, limits, seen),
        *_empty(plan, old, new),
        *_outage(plan, old, new),
        *_protect(old, new),
    )


def _mass_stop(plan: Plan, old: Catalog | None, new: Catalog, limits: Limits, seen: Seen) -> Iterator[Fired]:
    """Too much of what is ready would stop, for good or before its successor serves.

    While not everybody has spoken, what is ready is not known: then what the catalogs want is counted.
    """
    if seen.heard:
        gone = [row for row in plan.rows if row.origin != "healing" and row.symbol in ("-", "-/+")]
        stops, of, what = sum(row.replica in seen.serving for row in gone), len(seen.serving), "ready"
    else:
        stops, of = _fewer(old, new)
        what = "wanted"
    if stops < limits.least or stops <= limits.share * of:
        return
    share, least = _limit(limits, "mass_stop"), _limit(limits, "mass_stop_least")
    said = f"it would stop {stops} of {count(of, f'{what} replica')} ({100 * stops / of:.0f} %)"
    yield Fired(
        "mass_stop",
        str(stops),
        f"{said}, the limit is {limits.share * 100:g} %{share}, from {limits.least} on{least}",
    )


def _limit(limits: Limits, name: str) -> str:
    place = limits.places.get(name, "")
    return f" ({place})" if place else ""


def _fewer(old: Catalog | None, new: Catalog) -> tuple[int, int]:
    """How many replicas fewer `new` wants, model by model, and how many `old` wanted."""
    if old is None:
        return 0, 0
    fewer = sum(max(0, was.scaling.min - _least(new.models.get(name))) for name, was in old.models.items())
    return fewer, sum(was.scaling.min for was in old.models.values())


def _least(model: Model | None) -> int:
    return 0 if model is None else model.scaling.min


def _empty(plan: Plan, old: Catalog | None, new: Catalog) -> Iterator[Fired]:
    """Nothing would be left to ask. What runs is not asked first: after a restart nobody has spoken yet."""
    if old is not None and old.models and not new.models:
        yield Fired(
            "empty", "", f"it would remove {count(len(old.models), 'model')} and leave nothing to ask"
        )
        return
    stops = sum(row.symbol == "-" and row.origin != "healing" for row in plan.rows)
    if stops and not any(service.after for service in plan.service):
        yield Fired("empty", "", f"it would stop {count(stops, 'replica')} and leave nothing to ask")


def _outage(plan: Plan, old: Catalog | None, new: Catalog) -> Iterator[Fired]:
    """A name that clients may go on asking would have nobody ready on the way, nor a fallback that has."""
    if old is None:
        return
    service = {each.model: each for each in plan.service}
    before, after = owners(old), owners(new)
    for name in sorted(before.keys() & after.keys()):
        was, is_now = before[name], after[name]
        if was == is_now and name != was:
            continue  # an alias of the same model: that model's own name is looked at
        ready = service[was].now if was in service else 0
        if not ready or not (new.models[is_now].scaling.min or service[is_now].after):
            continue
        if is_now in service and service[is_now].lowest:
            continue
        if any(model in service and service[model].lowest for model in _chain(new, is_now)):
            continue
        moved = "" if was == is_now else f"; it moves from {was} to {is_now}"
        yield Fired("outage", name, f"{name} has {ready} ready now and would have 0 on the way{moved}")


def owners(catalog: Catalog) -> dict[str, str]:
    """Every name that clients may ask for → its model."""
    names = {alias: model.name for model in catalog.models.values() for alias in model.aliases}
    return names | {name: name for name in catalog.models}


def _chain(catalog: Catalog, model: str) -> list[str]:
    """The model, its fallbacks and theirs: who answers for it."""
    found = [model]
    for name in found:
        found += [each for each in catalog.models[name].fallbacks if each not in found]
    return found


def _protect(old: Catalog | None, new: Catalog) -> Iterator[Fired]:
    """A model that stands protected would be gone; taking the protection away at once does not help."""
    for name, was in sorted(old.models.items()) if old is not None else ():
        if not was.protect:
            continue
        place = f" ({place})" if old is not None and (place := old.place(f"model/{name}", "protect")) else ""
        if name not in new.models:
            yield Fired("protect", name, f"{name} is protected{place} and would be removed")
        elif was.scaling.min and not new.models[name].scaling.min:
            yield Fired("protect", name, f"{name} is protected{place} and would be scaled to zero")
