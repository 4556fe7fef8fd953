"""What a catalog changes, in the words of the catalog: why a plan does what it does.

Called by `planning.plan`. Codes are stable: they are part of a plan's identity.
"""

import dataclasses
from typing import Literal

from llmgw.catalog.model import Catalog, Model, Place, Profile

Code = Literal[
    "model_added",
    "model_removed",
    "scaled",
    "source_changed",
    "profile_changed",
    "engine_args_changed",
    "unchanged",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Why a model's replicas change. `place` is the line that causes it."""

    code: Code
    said: str
    place: Place | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Routing:
    """A change that restarts nothing: an alias, a fallback, a bound."""

    model: str
    said: str
    place: Place | None = None


_RESTARTS_NOTHING = ("name", "start_deadline", "drain", "node_labels")


def changes(old: Catalog | None, new: Catalog) -> dict[str, Change]:
    """Model → what changed about it, for every model of either catalog."""
    before = old.models if old is not None else {}
    names = sorted(before.keys() | new.models.keys())
    return {name: _change(old, new, name) for name in names}


def _change(old: Catalog | None, new: Catalog, name: str) -> Change:
    key = f"model/{name}"
    if old is None or name not in old.models:
        return Change("model_added", "new model", new.place(key))
    if name not in new.models:
        return Change("model_removed", "the model left the catalog", old.place(key))
    was, now = old.models[name], new.models[name]
    if was.source != now.source:
        return Change("source_changed", f"source -> {now.source.canonical}", new.place(key, "source"))
    if set(old.generations(was)) != set(new.generations(now)):
        return _profile_change(old, new, was, now)
    if was.scaling.min != now.scaling.min:
        said = f"scaling.min {was.scaling.min} -> {now.scaling.min}"
        return Change("scaled", said, new.place(key, "scaling.min") or new.place(key, "scaling"))
    return Change("unchanged", "")


def _profile_change(old: Catalog, new: Catalog, was: Model, now: Model) -> Change:
    if was.profiles != now.profiles:
        said = f"profiles {', '.join(was.profiles)} -> {', '.join(now.profiles)}"
        return Change("profile_changed", said, new.place(f"model/{now.name}", "profiles"))
    for name in now.profiles:
        for field, said in _fields(old.profiles[name], new.profiles[name]):
            return Change("engine_args_changed", said, new.place(f"profile/{name}", field))
    return Change("profile_changed", "its profile changed", new.place(f"model/{now.name}"))


def _fields(was: Profile, now: Profile) -> list[tuple[str, str]]:
    """(dotted field, `field old -> new`) of everything that forces a restart."""
    found: list[tuple[str, str]] = []
    for field in dataclasses.fields(Profile):
        a, b = getattr(was, field.name), getattr(now, field.name)
        if field.name in _RESTARTS_NOTHING or a == b:
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


def _show(value: object) -> str:
    return "unset" if value in (None, (), "") else str(value)


def routing(old: Catalog | None, new: Catalog) -> list[Routing]:
    """Changes of the routing table and of bounds, for models that are in both catalogs."""
    if old is None:
        return []
    found: list[Routing] = []
    for name in sorted(old.models.keys() & new.models.keys()):
        was, now = old.models[name], new.models[name]
        for field in ("aliases", "fallbacks"):
            a, b = getattr(was, field), getattr(now, field)
            if a != b:
                said = f"{field} {', '.join(a) or 'none'} -> {', '.join(b) or 'none'}"
                found.append(Routing(name, said, new.place(f"model/{name}", field)))
        if was.scaling != now.scaling and was.scaling.min == now.scaling.min:
            found.append(Routing(name, _scaling(was, now), new.place(f"model/{name}", "scaling")))
    return found


def _scaling(was: Model, now: Model) -> str:
    """Every bound that changed, old and new."""
    fields = (field.name for field in dataclasses.fields(now.scaling))
    pairs = ((name, getattr(was.scaling, name), getattr(now.scaling, name)) for name in fields)
    return ", ".join(f"scaling.{name} {a} -> {b}" for name, a, b in pairs if a != b)
