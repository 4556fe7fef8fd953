"""What a catalog changes, in the words of the catalog: why a plan does what it does.

Called by `planning.plan`. Codes are stable: they are part of a plan's identity.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

from llmgw.catalog.model import Catalog, Model, Place, Profile
from llmgw.planning.changes import changed, touched

Code = Literal[
    "model_added",
    "model_removed",
    "scaled",
    "source_changed",
    "profile_changed",
    "engine_args_changed",
    "unchanged",
]


MOST = 20
"""Differences of one model that are told one by one; the rest are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Why a model's replicas change. `place` is the line that causes it.

    `also` are its other differences, each with its line; `more` how many there are beyond those.
    """

    code: Code
    said: str
    place: Place | None = None
    also: tuple[tuple[str, str], ...] = ()
    more: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Routing:
    """A change that restarts nothing: an alias, a fallback, a drain. `model` is `profile/NAME` of an unused one; `name` is
    what clients asked another model by.
    """

    model: str
    said: str
    place: Place | None = None
    name: str = ""


UNCHANGED = Change("unchanged", "")
RESTARTS_NOTHING = ("name", "start_deadline", "drain", "node_labels")


def changes(old: Catalog | None, new: Catalog) -> dict[str, Change]:
    """Model → what changed about it, for every model of either catalog."""
    before = old.models if old is not None else {}
    names = sorted(before.keys() | new.models.keys())
    others = touched(old, new) if old is not None else names
    return {**dict.fromkeys(names, UNCHANGED), **{name: _change(old, new, name) for name in sorted(others)}}


def _change(old: Catalog | None, new: Catalog, name: str) -> Change:
    key = f"model/{name}"
    if old is None or name not in old.models:
        return Change("model_added", "new model", new.place(key))
    if name not in new.models:
        return Change("model_removed", "the model left the catalog", old.place(key))
    was, now = old.models[name], new.models[name]
    found = [*_source(new, was, now), *_profiles(old, new, was, now), *_bounds(new, was, now)]
    if not found:
        return UNCHANGED
    first, *others = found
    also = tuple((change.said, str(change.place or "")) for change in others[: MOST - 1])
    return dataclasses.replace(first, also=also, more=max(0, len(found) - MOST))


def _source(new: Catalog, was: Model, now: Model) -> Iterator[Change]:
    if was.source.canonical != now.source.canonical:
        said = f"source -> {now.source.canonical}"
        yield Change("source_changed", said, new.place(f"model/{now.name}", "source"))
    elif was.source.sha256 != now.source.sha256:
        said = f"sha256 {_show(was.source.sha256)} -> {_show(now.source.sha256)}"
        yield Change("source_changed", said, new.place(f"model/{now.name}", "sha256"))


def _profiles(old: Catalog, new: Catalog, was: Model, now: Model) -> Iterator[Change]:
    """What is new about how it runs; nothing where every generation is as it was."""
    if was.source == now.source and set(old.generations(was)) == set(new.generations(now)):
        return
    told = was.profiles != now.profiles
    if told:
        said = f"profiles {', '.join(was.profiles)} -> {', '.join(now.profiles)}"
        yield Change("profile_changed", said, new.place(f"model/{now.name}", "profiles"))
    for name in now.profiles:
        if name not in was.profiles:
            continue
        for field, said in _fields(old.profiles[name], new.profiles[name]):
            told = True
            yield Change("engine_args_changed", said, new.place(f"profile/{name}", field))
    if not told and was.source == now.source:
        yield Change("profile_changed", "its profile changed", new.place(f"model/{now.name}"))


def _bounds(new: Catalog, was: Model, now: Model) -> Iterator[Change]:
    """The bounds that start and stop replicas."""
    for field in ("min", "max"):
        before, after = getattr(was.scaling, field), getattr(now.scaling, field)
        if before != after:
            key = f"model/{now.name}"
            place = new.place(key, f"scaling.{field}") or new.place(key, "scaling")
            yield Change("scaled", f"scaling.{field} {before} -> {after}", place)


def _fields(was: Profile, now: Profile) -> list[tuple[str, str]]:
    """(dotted field, `field old -> new`) of everything that forces a restart."""
    found: list[tuple[str, str]] = []
    for field in dataclasses.fields(Profile):
        a, b = getattr(was, field.name), getattr(now, field.name)
        if field.name in RESTARTS_NOTHING or a == b:
            continue
        if field.name in ("args", "env"):
            before, after = dict(a), dict(b)
            found += [
                (f"{field.name}.{k}", f"{k} {_show(before.get(k))} -> {_show(after.get(k))}")
                for k in sorted(before.keys() | after.keys())
                if before.get(k) != after.get(k)
            ]
        else:
            found.append((field.name, f"{field.name} {_show(a)} -> {_show(b)}"))
    return found


def _kept(was: Profile, now: Profile) -> Iterator[tuple[str, str]]:
    """(field, `field old -> new`) of what restarts nothing."""
    for field in ("start_deadline", "drain"):
        a, b = getattr(was, field), getattr(now, field)
        if a != b:
            yield field, f"{field} {a:g}s -> {b:g}s"
    if was.node_labels != now.node_labels:
        yield "node_labels", f"node_labels {_labels(was)} -> {_labels(now)}"


def _labels(profile: Profile) -> str:
    return ", ".join(f"{name}={value}" for name, value in profile.node_labels) or "none"


def _show(value: object) -> str:
    return "unset" if value in (None, (), "") else str(value)


def routing(old: Catalog | None, new: Catalog) -> list[Routing]:
    """Changes that start and stop nothing, for models that are in both catalogs; unused profiles last."""
    if old is None:
        return []
    others = sorted(touched(old, new))
    both = [name for name in others if name in old.models and name in new.models]
    found = [change for name in both for change in _quiet(old, new, old.models[name], new.models[name])]
    return [*found, *_inherited(old, new, others), *_unused(old, new)]


def _inherited(old: Catalog, new: Catalog, others: Iterable[str]) -> Iterator[Routing]:
    """The names that a new model gets from another one; between models that stay both lines tell it."""
    whose = {name: model.name for model in old.models.values() for name in (model.name, *model.aliases)}
    for heir in others:
        if heir not in new.models or heir in old.models:
            continue
        for name in (heir, *new.models[heir].aliases):
            if name in whose:
                place = new.place(f"model/{heir}", "name" if name == heir else "aliases")
                yield Routing(heir, f"{name} goes from {whose[name]} to {heir}", place, name)


def _quiet(old: Catalog, new: Catalog, was: Model, now: Model) -> Iterator[Routing]:
    """What differs in one model, or in a profile of it, and restarts nothing."""
    name, key = now.name, f"model/{now.name}"
    for field in ("aliases", "fallbacks"):
        a, b = getattr(was, field), getattr(now, field)
        if a != b:
            said = f"{field} {', '.join(a) or 'none'} -> {', '.join(b) or 'none'}"
            yield Routing(name, said, new.place(key, field))
    before, after = was.scaling.target_in_flight, now.scaling.target_in_flight
    if before != after:
        said = f"scaling.target_in_flight {before} -> {after}"
        yield Routing(name, said, new.place(key, "scaling"))
    if was.protect != now.protect:
        yield Routing(name, f"protect {was.protect} -> {now.protect}".lower(), new.place(key, "protect"))
    same = was.source == now.source and set(old.generations(was)) == set(new.generations(now))
    if same and was.profiles != now.profiles:
        said = f"profiles {', '.join(was.profiles)} -> {', '.join(now.profiles)}"
        yield Routing(name, said, new.place(key, "profiles"))
    for profile in now.profiles:
        if profile in was.profiles:
            a, b = old.profiles[profile], new.profiles[profile]
            yield from (Routing(name, said, new.place(f"profile/{profile}", f)) for f, said in _kept(a, b))


def _unused(old: Catalog, new: Catalog) -> Iterator[Routing]:
    """Profiles that came, went or changed, and that no model of either catalog names."""
    used = {name for each in (old, new) for model in each.models.values() for name in model.profiles}
    for name in sorted(set(changed(old.profiles, new.profiles)) - used):
        key = f"profile/{name}"
        was, now = old.profiles.get(name), new.profiles.get(name)
        if was is None:
            yield Routing(key, "new profile, not used yet", new.place(key))
        elif now is None:
            yield Routing(key, "the profile left the catalog; nothing used it", old.place(key))
        else:
            for field, said in (*_fields(was, now), *_kept(was, now)):
                yield Routing(key, said, new.place(key, field))
