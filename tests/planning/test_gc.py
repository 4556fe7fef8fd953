"""What nothing wants: never what is wanted, used, on its way, or only believed to be there."""

import dataclasses

from llmgw.catalog.model import Profile
from llmgw.catalog.sources import parse
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.shard import Peer, Progress, ShardSpec, ShardStatus, State
from llmgw.fleet.world import Fleet
from llmgw.planning.gc import Kept, Listing, NotAsked, Wanted, listing

NOW = 1000.0
ALPHA, BETA = parse("hf://org/alpha@main"), parse("hf://org/beta@main")


def _entry(name: str, size: int = 100, *, whole: bool = True) -> CachedWeights:
    return CachedWeights(name, f"hf://org/{name}@main", size, modified=5.0, whole=whole)


def _node(
    name: str,
    *entries: CachedWeights,
    seen: float = NOW,
    shards: tuple[tuple[ShardSpec, ShardStatus], ...] = (),
) -> Fleet:
    info = NodeInfo(name, name, weights=entries)
    return Fleet(since=0.0).apply(events.Registered(info, shards), seen)


def _shard(state: State, node: str = "a") -> tuple[ShardSpec, ShardStatus]:
    spec = ShardSpec("alpha/x7qf", "alpha", 0, "g", Profile("p", "llamacpp"), ALPHA, (Peer(0, node, "h", 1),))
    return spec, ShardStatus("alpha/x7qf", 0, state)


def _list(fleet: Fleet, *wanted: str, rollback: tuple[str, ...] = ()) -> Listing:
    return listing(fleet, Wanted(frozenset(wanted), frozenset(rollback)), NOW, Timers())


def _names(found: Listing) -> list[str]:
    return [candidate.entry.cache_name for candidate in found.candidates]


def test_what_the_catalog_wants_stays() -> None:
    """Wanted, also for a rollback, is kept and added up; the rest is listed, biggest first."""
    fleet = _node("a", _entry("w", 10), _entry("r", 20), _entry("x", 30), _entry("y", 40))
    found = _list(fleet, "w", rollback=("r",))
    assert _names(found) == ["y", "x"]
    assert found.size == 70
    assert found.kept == (
        Kept("wanted by an earlier catalog, for a rollback", 1, 20),
        Kept("wanted by the catalog", 1, 10),
    )
    assert found.by_node() == {"a": (_entry("y", 40), _entry("x", 30))}


def test_what_a_shard_uses_stays_in_every_state() -> None:
    """Draining, failed or stopping: while a shard exists, its weights are in use."""
    name = _shard("ready")[0].cache_name
    states: tuple[State, ...] = (
        "assigned",
        "fetching",
        "held",
        "starting",
        "ready",
        "draining",
        "stopping",
        "failed",
    )
    for state in states:
        found = _list(_node("a", _entry(name), shards=(_shard(state),)))
        assert _names(found) == []
        assert found.kept == (Kept(f"in use by alpha/x7qf ({state})", 1, 100),)


def test_a_shard_elsewhere_uses_nothing_here() -> None:
    """In use is a matter of the node, wanted one of the catalog."""
    name = _shard("ready")[0].cache_name
    fleet = _node("a", _entry(name), shards=(_shard("ready"),))
    fleet = fleet.apply(events.Registered(NodeInfo("b", "b", weights=(_entry(name),))), NOW)
    assert [(candidate.node, candidate.entry.cache_name) for candidate in _list(fleet).candidates] == [
        ("b", name)
    ]


def test_a_fetch_under_way_is_never_listed() -> None:
    """The partial of a running fetch stays; one that nobody continues is listed as abandoned."""
    fleet = _node("a", _entry("p", whole=False))
    running = fleet.apply(events.Progressed("a", (Progress("p", 50),)), NOW)
    assert _names(_list(running)) == []
    (candidate,) = _list(fleet).candidates
    assert candidate.because == "abandoned fetch of no model's source"
    assert _names(_list(fleet, "p")) == [], "a wanted one waits to be resumed"


def test_silence_is_no_evidence() -> None:
    """A node that is unheard, silent, cut off or says nothing of its cache offers nothing, and is named."""
    roster = Fleet(since=0.0, roster=frozenset({"never"}))
    assert _list(roster).not_asked == (NotAsked("never", "not heard since this control plane started"),)
    silent = _node("a", _entry("x"), seen=NOW - 40)
    assert _list(silent) == Listing((), (), (NotAsked("a", "not heard for 40s"),))
    cut = _node("a", _entry("x")).apply(events.Disconnected("a"), NOW)
    assert _list(cut).candidates == ()
    mute = _node("a").apply(events.Registered(NodeInfo("a", "a", weights=None)), NOW)
    assert _list(mute).not_asked == (NotAsked("a", "it says nothing about its cache"),)


def test_the_id_is_of_the_list_and_of_nothing_else() -> None:
    """The same candidates have the same id whatever is kept; any change of one gives another."""
    fleet = _node("a", _entry("x"), _entry("y"), _entry("w"))
    first = _list(fleet, "w")
    turned = dataclasses.replace(first, candidates=first.candidates[::-1], kept=(), not_asked=())
    assert first.id == turned.id
    assert first.id.startswith("g-")
    assert len(first.id) == 8
    for other in (_entry("x", 101), dataclasses.replace(_entry("x"), modified=6.0), _entry("x", whole=False)):
        assert _list(_node("a", other, _entry("y"), _entry("w")), "w").id != first.id
    assert _list(_node("b", _entry("x"), _entry("y"), _entry("w")), "w").id != first.id


def test_it_can_be_narrowed_to_nodes() -> None:
    """Other nodes are then neither listed nor named."""
    fleet = _node("a", _entry("x")).apply(events.Registered(NodeInfo("b", "b", weights=(_entry("y"),))), NOW)
    found = listing(fleet, Wanted(frozenset()), NOW, Timers(), nodes=("b",))
    assert _names(found) == ["y"]
    assert found.not_asked == ()
