"""Why a model has fewer replicas than it should: one line each, for `llmgw status`, the rows and `why`. Pure.

A failure counts for as long as it is felt: once as many as are wanted have proved themselves it is history.
"""

import collections
from collections.abc import Iterable, Iterator

from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.ledger import Trouble
from llmgw.planning.needs import Unplaced
from llmgw.planning.scaling import wanted
from llmgw.planning.view import View


def reasons(view: View, unplaced: Iterable[Unplaced], late: Iterable[str]) -> dict[str, str]:
    """Why each of the models `late` has fewer ready than it should; of those that wait for nobody, nothing."""
    missing = {item.model: item for item in unplaced}
    failing = {model: (generation, trouble) for model, generation, trouble in _by_age(felt(view))}
    found: dict[str, str] = {}
    for name in late:
        parts: list[str] = []
        if name in failing:
            parts.append(tried(view, name, *failing[name]))
        if name in missing:
            parts.append(no_place(missing[name]))
        if silent := _silent(view, name):
            parts.append(f"no word from {', '.join(silent)}")
        if not parts:
            coming = collections.Counter(_coming(view, name))
            parts = [f"{number} {phase}" for phase, number in sorted(coming.items())]
        if parts:
            found[name] = "; ".join(parts)
    return found


def felt(view: View) -> Iterator[tuple[str, str, Trouble]]:
    """(model, generation, trouble) of the failures for which fewer serve than should, or the new ones do not."""
    for (model, generation), trouble in sorted(view.ledger.troubles.items()):
        if not recovered(view, model):
            yield model, generation, trouble


def _by_age(troubles: Iterable[tuple[str, str, Trouble]]) -> list[tuple[str, str, Trouble]]:
    """The newest failure last."""
    return sorted(troubles, key=lambda found: found[2].at)


def _coming(view: View, model: str, generation: str = "") -> Iterator[str]:
    """The phase of each replica that is on its way, of one generation or of any."""
    for replica in view.of_model(model):
        if replica.phase in ("Fetching", "Starting") and generation in ("", replica.generation):
            yield replica.phase


def _silent(view: View, model: str) -> list[str]:
    """The names of the silent nodes on which it serves."""
    nodes = {
        peer.node
        for replica in view.of_model(model)
        if replica.phase == "Unreachable"
        for peer in replica.spec.peers
        if view.standings.get(peer.node) != "Ready"
    }
    return sorted(map(view.fleet.name, nodes))


def halts(view: View, model: str, generation: str, trouble: Trouble) -> list[str]:
    """The replicas of before that serve on because this new generation fails; none where it had proved itself. Under
    several profiles a model has several generations that are current: none of them is one of before.
    """
    want = view.board.wants.models.get(model) if view.board.wants is not None else None
    if want is None or generation not in want.generations or trouble.served >= view.timers.min_ready:
        return []
    serve = (r for r in view.of_model(model) if r.serves and r.id not in view.ledger.drains)
    return [replica.id for replica in serve if replica.generation not in want.generations]


def recovered(view: View, model: str) -> bool:
    """Whether as many as are wanted serve and have been what they are for `min_ready`, all as the catalog asks."""
    catalog = view.desired.catalog
    if catalog is None or model not in catalog.models:
        return False
    current = catalog.generations(catalog.models[model])
    proved = sum(
        replica.serves
        and replica.generation in current
        and replica.id not in view.ledger.drains
        and view.now - replica.since >= view.timers.min_ready
        for replica in view.of_model(model)
    )
    return proved >= wanted(view, catalog.models[model])


def tried(view: View, model: str, generation: str, trouble: Trouble) -> str:
    """`failed to start 2 times, try 3 in 8s; last: rank 0: exit 1`."""
    left = trouble.until - view.now
    again = f"try {trouble.failures + 1}"
    when = f"{again} in {show_seconds(left)}" if left > 0 else "it may be tried now"
    if 0 < left < 1:  # fractions of a second tell nobody anything
        when = f"{again} is next"
    if next(_coming(view, model, generation), ""):
        when = f"{again} is under way"
    last = trouble.reason if trouble.served else f"last: {trouble.reason}"
    halted = "the roll-out is halted: it " if halts(view, model, generation, trouble) else ""
    return f"{halted}{trouble.said}, {when}; {last}"


def no_place(item: Unplaced) -> str:
    """`fits on none of 2 nodes; n0: no vllm`."""
    nodes = len({reason.node for reason in item.reasons})
    first = f"; {item.reasons[0]}" if item.reasons else ""
    where = f"fits on none of {count(nodes, 'node')}" if nodes else "no node is there to take it"
    return f"{item.short or where}{first}"
