"""The guards: what a plan may not do unless a person allows exactly that. Pure.

`judging` asks them of every plan, so that `plan`, `apply` and a catalog that is followed get one answer. A guard
counts what the plan would really do, says it with the limit, and names its way out. While nodes have not spoken
since a restart nobody knows what runs: then what the catalogs want counts.
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
        *_empty(plan, old, new, seen),
        *(_outage(plan, old, new) if seen.heard else _unknown_outage(old, new)),
        *_protect(old, new),
    )


def takes_away(old: Catalog | None, new: Catalog) -> bool:
    """Whether `new` can stop or replace anything that may run, as far as the catalogs tell."""
    if old is None or old.models.keys() - new.models.keys():
        return True
    before, after = owners(old), owners(new)
    moved = any(after.get(name) != model for name, model in before.items())
    return moved or any(
        _fewer(old, new, model)[0] or _is_less(old, new, name) for name, model in old.models.items()
    )


def _mass_stop(plan: Plan, old: Catalog | None, new: Catalog, limits: Limits, seen: Seen) -> Iterator[Fired]:
    """Too much of what is ready would stop, for good or before its successor serves.

    While not everybody has spoken, what is ready is not known: then what the catalogs want is counted, and
    whether a successor comes first is not known either.
    """
    if seen.heard:
        gone = [row for row in plan.rows if row.origin != "healing" and row.symbol in ("-", "-/+")]
        stops, of = sum(row.replica in seen.serving for row in gone), len(seen.serving)
        verb, what = "stop", "ready"
    else:
        each = [_fewer(old, new, was) for was in old.models.values()] if old is not None else []
        stops, of = sum(fewer for fewer, _ in each), sum(wanted for _, wanted in each)
        verb, what = "stop or replace", "wanted"
    if stops < limits.least or stops <= limits.share * of:
        return
    share, least = _limit(limits, "mass_stop"), _limit(limits, "mass_stop_least")
    said = f"it would {verb} {stops} of {count(of, f'{what} replica')} ({100 * stops / of:.0f} %)"
    yield Fired(
        "mass_stop",
        str(stops),
        f"{said}, the limit is {limits.share * 100:g} %{share}, from {limits.least} on{least}",
    )


def _limit(limits: Limits, name: str) -> str:
    place = limits.places.get(name, "")
    return f" ({place})" if place else ""


def _fewer(old: Catalog, new: Catalog, was: Model) -> tuple[int, int]:
    """How many of the replicas that `old` wants of a model `new` stops or replaces, and how many that were."""
    now, wanted = new.models.get(was.name), was.scaling.min
    if now is None or _is_less(old, new, was.name):
        return wanted, wanted
    if now.scaling.max < was.scaling.max:  # as many as that may run: what requests ask for is not known
        return max(was.scaling.max - now.scaling.max, wanted - now.scaling.min), was.scaling.max
    return max(0, wanted - now.scaling.min), wanted


def _is_less(old: Catalog, new: Catalog, name: str) -> bool:
    """Whether a generation that may run is not wanted any more."""
    return bool(old.generations(old.models[name]).keys() - new.generations(new.models[name]).keys())


def _empty(plan: Plan, old: Catalog | None, new: Catalog, seen: Seen) -> Iterator[Fired]:
    """Nothing would be left to ask. What runs is not asked first: after a restart nobody has spoken yet."""
    if old is not None and old.models and not new.models:
        yield Fired(
            "empty", "", f"it would remove {count(len(old.models), 'model')} and leave nothing to ask"
        )
        return
    if seen.heard:
        stops = sum(row.symbol == "-" and row.origin != "healing" for row in plan.rows)
        left = any(service.after for service in plan.service)
    else:
        stops = sum(was.scaling.min for was in old.models.values()) if old is not None else 0
        left = any(model.scaling.max for model in new.models.values())
    if stops and not left:
        yield Fired("empty", "", f"it would stop {count(stops, 'replica')} and leave nothing to ask")


def _outage(plan: Plan, old: Catalog | None, new: Catalog) -> Iterator[Fired]:
    """A name that clients may go on asking would have nobody ready on the way, nor a fallback that has."""
    if old is None:
        return
    service = {each.model: each for each in plan.service}
    before, after, moved = owners(old), owners(new), dict(plan.moved)
    for name in sorted(before.keys() & after.keys()):
        was, is_now = before[name], after[name]
        if was == is_now and name != was:
            continue  # an alias of the same model: that model's own name is looked at
        if was != is_now and moved.get(name):
            continue  # who answers for it goes on until the next one does
        ready = service[was].now if was in service else 0
        if not ready or not (new.models[is_now].scaling.min or service[is_now].after):
            continue
        if is_now in service and service[is_now].lowest:
            continue
        if any(model in service and service[model].lowest for model in _chain(new, is_now)):
            continue
        goes = "" if was == is_now else f"; it moves from {was} to {is_now}"
        yield Fired("outage", name, f"{name} has {ready} ready now and would have 0 on the way{goes}")


def _unknown_outage(old: Catalog | None, new: Catalog) -> Iterator[Fired]:
    """A name behind which everything would be replaced, while nobody knows whether there is room for both."""
    if old is None:
        return
    before, after = owners(old), owners(new)
    for name in sorted(before.keys() & after.keys()):
        was, is_now = before[name], after[name]
        if was == is_now and name != was:
            continue
        if not (old.models[was].scaling.min and new.models[is_now].scaling.min):
            continue
        if any(_goes_on(old, new, model) for model in _chain(new, is_now)):
            continue
        said = f"what answers for {name} would be replaced, and not every node has spoken since the restart"
        yield Fired("outage", name, f"{said}: whether it has 0 on the way is not known yet")


def _goes_on(old: Catalog, new: Catalog, name: str) -> bool:
    """Whether some of what `old` wants of a model is wanted as it is."""
    if name not in old.models or name not in new.models:
        return False
    was, now = old.models[name], new.models[name]
    kept = old.generations(was).keys() & new.generations(now).keys()
    return bool(kept and was.scaling.min and now.scaling.min)


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
