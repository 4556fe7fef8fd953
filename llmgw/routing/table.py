"""The routing table as requests read it: a name → where it may go, in order.

Built by `gateway.endpoints` from each `fleet.routes.Routes` that arrives; `routing.retry` walks it.
A table is whole and frozen: the next one replaces it, nothing edits it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from llmgw.fleet.routes import Endpoint, RoutedModel, Routes


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """One model of a chain and its Ready endpoints; Draining ones are not in here. `slow` = some are."""

    model: str
    endpoints: tuple[Endpoint, ...]
    slow: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where a request for `model` may go: the model itself, then its fallbacks, each once.

    `sleeps` = it has no replica, and gets one when it is asked for.
    """

    model: str
    retry_after: float
    levels: tuple[Level, ...]
    sleeps: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RoutingTable:
    """`routes` is by every name that a client may ask for, aliases too; `names` keeps the catalog's order."""

    version: int = 0
    routes: Mapping[str, Route] = dataclasses.field(default_factory=dict)
    names: tuple[str, ...] = ()
    models: frozenset[str] = frozenset()
    ready: Mapping[str, Endpoint] = dataclasses.field(default_factory=dict)

    def route(self, name: str) -> Route | None:
        """The route of a model or an alias; None when the catalog has no such name."""
        return self.routes.get(name)


def merged(held: Routes, told: Routes) -> Routes:
    """The snapshot to serve by after `told`: itself, or, when it is partial, what is held and it on top."""
    if not told.partial:
        return told
    models = {model.name: model for model in (*held.models, *told.models)}
    endpoints = {endpoint.replica: endpoint for endpoint in (*held.endpoints, *told.endpoints)}
    return Routes(told.version, models=tuple(models.values()), endpoints=tuple(endpoints.values()))


def build(routes: Routes) -> RoutingTable:
    """The table of a snapshot. A fallback that is not in it is left out, and a ring ends where it closes."""
    models = {model.name: model for model in routes.models}
    ready = {e.replica: e for e in routes.endpoints if not e.draining and e.model in models}
    levels = {name: _level(name, tuple(e for e in ready.values() if e.model == name)) for name in models}
    by_name: dict[str, Route] = {}
    for model in routes.models:
        chain = tuple(levels[name] for name in _chain(model, models))
        sleeps = model.wakes and not chain[0].endpoints
        route = Route(model.name, model.retry_after, chain, sleeps)
        by_name[model.name] = route
    for alias, name in _aliases(routes.models):
        by_name.setdefault(alias, by_name[name])
    return RoutingTable(routes.version, by_name, tuple(by_name), frozenset(models), ready)


def _level(model: str, endpoints: tuple[Endpoint, ...]) -> Level:
    return Level(model, endpoints, any(endpoint.slow for endpoint in endpoints))


def _aliases(models: Iterable[RoutedModel]) -> Iterator[tuple[str, str]]:
    return ((alias, model.name) for model in models for alias in model.aliases)


def _chain(model: RoutedModel, models: Mapping[str, RoutedModel]) -> list[str]:
    """The model's own fallbacks first, in its order; then theirs."""
    chain = [model.name]
    for name in chain:
        chain.extend(
            fallback
            for fallback in dict.fromkeys(models[name].fallbacks)
            if fallback in models and fallback not in chain
        )
    return chain
