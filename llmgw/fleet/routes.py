"""What gateways need to know, decided by `planning` and served by `routing`; `wire` carries it."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """One routable replica: rank 0's address. Draining endpoints finish what they have and get no more.

    A slow one gets what no other replica of its model can take.
    """

    replica: str
    model: str
    address: str
    port: int
    draining: bool = False
    slow: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RoutedModel:
    """A name clients may ask for. `fallbacks` are model names, in order; no cycles.

    `wakes` = it may have no replica for want of requests, and gets one when it is asked for.
    """

    name: str
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    retry_after: float = 10.0
    wakes: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Routes:
    """A full snapshot. Versions only grow, across restarts of the control plane too: see `first_version`.

    `partial` = a restarted control plane has not heard every node yet, or has no catalog: a gateway adds this to what it
    has, and takes nothing away.
    """

    version: int = 0
    partial: bool = False
    models: tuple[RoutedModel, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()


def first_version(epoch: int) -> int:
    """Below every table of `epoch`, above every table of those before it: 2²⁴ tables an epoch."""
    return epoch << 24


def epoch_of(version: int) -> int:
    """The epoch of the control plane that made the table."""
    return version >> 24
