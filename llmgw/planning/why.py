"""Why a model or a replica is as it is: everything that decides about it, said. Pure, from one `View`.

The API answers `llmgw why` with it, and with `why_node`. Whatever it says follows from the very look that
`reconcile` takes.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Model
from llmgw.fleet.causes import could_not_fetch
from llmgw.fleet.replica import Replica
from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.draining import NEW
from llmgw.planning.ledger import Draining, Trouble
from llmgw.planning.needs import Unplaced
from llmgw.planning.placement import Request, refusals
from llmgw.planning.reasons import halts, recovered, tried
from llmgw.planning.scaling import wanted
from llmgw.planning.screen import replica_state
from llmgw.planning.view import View
from llmgw.planning.wouldfit import would_fit

MOST_NODES = 64
"""Nodes whose reasons are told; of more, how many."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rejected:
    """A node and every reason why it takes no replica of this kind: (rule, said)."""

    node: str
    reasons: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Why:
    """The answer. `said` are sentences, what matters most first; `rejected` are nodes that do not fit.

    `would_fit` are changes with which it would fit; `try_next` is a command.
    """

    kind: Literal["model", "replica", "node", "gateway"]
    name: str
    state: str
    said: tuple[str, ...]
    rejected: tuple[Rejected, ...] = ()
    more_nodes: int = 0
    would_fit: tuple[str, ...] = ()
    try_next: str = ""


# --- a model ---------------------------------------------------------------------------------


def why_model(view: View, unplaced: Iterable[Unplaced], name: str, facts: ModelFacts | None) -> Why:
    """Why this many replicas of a model of the catalog, and no others."""
    assert view.desired.catalog is not None
    model = view.desired.catalog.models[name]
    missing = next((item for item in unplaced if item.model == name), None)
    known = [(g, t) for (m, g), t in sorted(view.ledger.troubles.items()) if m == name]
    troubles = [] if recovered(view, name) else known
    current = view.desired.catalog.generations(model)
    serve = [r for r in view.of_model(name) if r.serves and r.id not in view.ledger.drains]
    fresh = [r for r in serve if r.generation in current]
    ready, silent = len(fresh), sum(r.phase == "Unreachable" for r in fresh)
    count_wanted = wanted(view, model)
    said = [
        f"{ready} of {count_wanted} ready{_silent(silent)}{_before(len(serve) - ready)}; {_bounds(view, model)}",
        *stops_all(view),
        *([f"paused: {reason}"] if (reason := view.desired.marks.paused.get(name)) else []),
        *(line for generation, trouble in troubles for line in _trouble(view, name, generation, trouble)),
        *([f"no place for {_profile(missing)}: {missing.because}"] if missing is not None else []),
        *(
            f"{each} stays where it is: there is nowhere to move it"
            for each in (missing.stay if missing else ())
        ),
        *(f"{replica.id} is {state_of(view, replica)}" for replica in view.of_model(name)),
        *(_was(view, *each) for each in known if each not in troubles),
    ]
    rejected = _by_node(missing)
    return Why(
        "model",
        name,
        _model_state(view, name, (ready, silent), count_wanted, missing, troubles),
        tuple(said),
        rejected[:MOST_NODES],
        max(0, len(rejected) - MOST_NODES),
        _would_fit(view, missing, model, facts),
        _next_of_model(view, name, missing, troubles),
    )


def state_of(view: View, replica: Replica) -> str:
    """`Draining: 3 in flight, …`."""
    state, detail = replica_state(view, replica)
    return f"{state}: {detail}" if detail else state


def _model_state(
    view: View,
    name: str,
    there: tuple[int, int],
    count_wanted: int,
    missing: Unplaced | None,
    troubles: list[tuple[str, Trouble]],
) -> str:
    if name in view.desired.marks.paused:
        return "Paused"
    if troubles:
        return "Backoff" if any(trouble.until > view.now for _, trouble in troubles) else "Retrying"
    if missing is not None and not missing.stay:
        return "Pending"
    ready, silent = there
    if ready < count_wanted:
        return "Starting"
    return "Ready" if ready - silent >= count_wanted else "Unreachable"


def _silent(replicas: int) -> str:
    """How many of them nobody has heard of lately: they are asked as before, and do not count as there."""
    return f", {replicas} of them on silent nodes" if replicas else ""


def _before(replicas: int) -> str:
    """How many of another generation than the catalog's serve meanwhile."""
    return (
        f"; {replicas} of the generation before {'serves' if replicas == 1 else 'serve'}" if replicas else ""
    )


def _bounds(view: View, model: Model) -> str:
    low, high = model.scaling.min, model.scaling.max
    place = view.desired.catalog.place(f"model/{model.name}") if view.desired.catalog is not None else None
    bounds = f"{low} is asked for" if low == high else f"between {low} and {high} by what is in flight"
    return f"{bounds} ({place})" if place is not None else bounds


def stops_all(view: View) -> Iterator[str]:
    """What holds up everything."""
    if view.dark:
        yield "most nodes fell silent together: nothing is placed and nothing is stopped"
    if not view.heard:
        names = ", ".join(sorted(map(view.fleet.name, view.unheard))[:10])
        yield f"waits for nodes of the roster that have not spoken since a restart: {names}"


def _trouble(view: View, name: str, generation: str, trouble: Trouble) -> Iterator[str]:
    yield f"generation {generation[:6]}: {tried(view, name, generation, trouble)}"
    if trouble.nodes:
        yield f"nodes avoided where others fit: {', '.join(map(view.fleet.name, trouble.nodes))}"
    if older := halts(view, name, generation, trouble):
        yield f"the roll-out of {generation[:6]} is halted: {', '.join(older)} of before go on serving"


def _was(view: View, generation: str, trouble: Trouble) -> str:
    """A failure that nobody feels any more."""
    ago = show_seconds(max(0.0, view.now - trouble.at))
    return f"as many as are wanted serve again; {ago} ago generation {generation[:6]} {trouble.said}: {trouble.reason}"


def _profile(missing: Unplaced) -> str:
    gang = f", which {missing.short}" if missing.short else ""
    return f"one replica under profile {missing.profile}{gang}"


def _by_node(missing: Unplaced | None) -> tuple[Rejected, ...]:
    if missing is None:
        return ()
    groups = itertools.groupby(missing.reasons, key=lambda reason: reason.node)
    return tuple(Rejected(node, tuple((r.rule, r.said) for r in reasons)) for node, reasons in groups)


def _would_fit(
    view: View, missing: Unplaced | None, model: Model, facts: ModelFacts | None
) -> tuple[str, ...]:
    """Other profiles and moves, and nodes of which one single reason stands in the way."""
    if missing is None or view.desired.catalog is None:
        return ()
    profile = view.desired.catalog.profiles[missing.profile]
    size = view.board.known_size(model.cache_name) or view.desired.sizes.get(model.cache_name, 0)
    alone = [
        f"on {each.node} were it not for this: {each.reasons[0][1]}"
        for each in _by_node(missing)
        if len(each.reasons) == 1
    ]
    return (*would_fit(view, model, profile, size, facts), *alone[:3])


def _next_of_model(
    view: View, name: str, missing: Unplaced | None, troubles: list[tuple[str, Trouble]]
) -> str:
    if name in view.desired.marks.paused:
        return f"llmgw resume {name}"
    if troubles:
        return _next_of_trouble(view, name, troubles)
    return f"llmgw events --for {name}" if missing is None else "llmgw nodes"


def _next_of_trouble(view: View, name: str, troubles: list[tuple[str, Trouble]]) -> str:
    """Its last words; then another try, another profile or, where another generation serves, the way back to that."""
    failing = dict(troubles)
    last = max(failing.values(), key=lambda trouble: trouble.at)
    other = any(r.serves and r.generation not in failing for r in view.of_model(name))
    then = ", or llmgw rollback" if other else ", then llmgw apply"
    if could_not_fetch(last.reason):
        field = "sha256" if "sha256" in last.reason else "source"
        return f"correct {_line(view, f'model/{name}', field)}{then}; llmgw retry {name} where the server was at fault"
    look = f"llmgw logs {name} --previous, then llmgw retry {name}"
    if all(trouble.served for trouble in failing.values()):
        return look
    return f"{look}; where it needs another profile: correct {_line(view, f'profile/{last.profile}')}{then}"


def _line(view: View, what: str, field: str = "") -> str:
    """Where the catalog says it, or what is to be looked for where nobody knows the place."""
    catalog = view.desired.catalog
    place = catalog.place(what, field) if catalog is not None else None
    if not field:
        return f"{place}" if place is not None else "the profile"
    return f"its {field} ({place})" if place is not None else f"its {field}"


# --- a replica -------------------------------------------------------------------------------


def why_replica(view: View, name: str) -> Why:
    """Why a replica of the fleet is where it is and what it is."""
    replica = view.replicas[name]
    state, detail = replica_state(view, replica)
    said = [
        *([detail] if detail else []),
        *stops_all(view),
        *_draining(view, replica),
        *_place(replica, view),
        *_current(view, replica),
        *_elsewhere(view, replica),
    ]
    return Why("replica", name, state, tuple(said), try_next=f"llmgw logs {name}")


def _place(replica: Replica, view: View) -> Iterator[str]:
    for peer, shard in zip(replica.spec.peers, replica.shards, strict=True):
        node = view.fleet.name(peer.node)
        if shard is None:
            yield f"rank {peer.rank} is on {node}, which does not report it"
            continue
        cards = f" GPU {', '.join(shard.spec.gpus)}" if shard.spec.gpus else ""
        yield f"rank {peer.rank} on {node}{cards}: {shard.state} for {show_seconds(max(0.0, view.now - shard.since))}"


def _current(view: View, replica: Replica) -> Iterator[str]:
    wants = view.board.wants
    if wants is None:
        return
    want = wants.models.get(replica.model)
    if want is None:
        yield f"{replica.model} is not in the catalog: it has to go"
    elif replica.generation not in want.generations:
        yield f"generation {replica.generation[:6]} is not the catalog's any more: a successor takes over"


def _draining(view: View, replica: Replica) -> Iterator[str]:
    """For whom a drain still waits."""
    drain = view.ledger.drains.get(replica.id)
    if drain is None:
        return
    yield f"drains since {show_seconds(view.now - drain.since)}: {drain.because}"
    if not drain.stop_sent:
        yield from (f"waits for {who}" for who in _waits_for(view, replica, drain))


def _waits_for(view: View, replica: Replica, drain: Draining) -> Iterator[str]:
    for name, gateway in sorted(view.fleet.gateways.items()):
        flying = gateway.in_flight.get(replica.id, 0)
        if flying:
            yield f"{count(flying, 'request')} in flight at gateway {name}"
        elif view.silent(name):
            yield f"gateway {name}, silent for {show_seconds(view.now - gateway.last_seen)}"
        elif drain.version == NEW or not drain.version <= gateway.acked <= view.ledger.routes.version:
            yield f"gateway {name}, which has not acknowledged the table that says so"
    head = replica.shards[0]
    if head is not None and head.status.idle is False:
        yield "its engine, which is not idle"


def _elsewhere(view: View, replica: Replica) -> Iterator[str]:
    """Why it is here and not on the other nodes: those that would take it too, and why the others do not."""
    wants = view.board.wants
    want = wants.models.get(replica.model) if wants is not None else None
    if want is None:
        return
    spec = replica.spec
    request = Request(want.model, spec.profile, spec.generation, spec.cache_name, spec.source_bytes)
    here = {peer.node for peer in spec.peers}
    others = [site for name, site in sorted(view.board.stock.sites.items()) if name not in here]
    free: list[str] = []
    for site in others[:MOST_NODES]:
        if found := refusals([site], request):
            yield f"not on {site.name}: {found[0].said}"
        else:
            free.append(site.name)
    if free:
        yield (
            f"{', '.join(free)} would do now too; placed by siblings apart, then the cards that are wanted"
            " least, best fit, weights held, name"
        )
