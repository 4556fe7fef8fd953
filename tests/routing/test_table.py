"""The table of a snapshot."""

from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from llmgw.routing.table import build, merged


def endpoint(replica: str, *, draining: bool = False) -> Endpoint:
    return Endpoint(replica, replica.rpartition("/")[0], "127.0.0.1", 1, draining)


def levels(routes: Routes, name: str) -> list[str]:
    """The models that a request for `name` may reach, in order."""
    route = build(routes).route(name)
    assert route is not None
    return [level.model for level in route.levels]


def test_a_name_and_its_aliases_lead_the_same_way() -> None:
    """An alias is a name like any other; a name nobody wrote has no route."""
    table = build(Routes(1, models=(RoutedModel("a", aliases=("x", "y")),)))
    assert table.route("a") is table.route("x") is table.route("y")
    assert table.route("z") is None
    assert table.names == ("a", "x", "y")


def test_an_alias_never_hides_a_model() -> None:
    """Where both claim a name, the model has it."""
    table = build(Routes(1, models=(RoutedModel("a", aliases=("b",)), RoutedModel("b"))))
    route = table.route("b")
    assert route is not None
    assert route.model == "b"


def test_draining_replicas_are_not_offered() -> None:
    """Only Ready ones are in a level, and in `ready`."""
    table = build(
        Routes(1, models=(RoutedModel("a"),), endpoints=(endpoint("a/1"), endpoint("a/2", draining=True)))
    )
    assert list(table.ready) == ["a/1"]


def test_fallbacks_come_in_their_own_order_and_then_theirs() -> None:
    """a names b and c, b names d: a, b, c, d; and d, where b is unavailable, is still the last."""
    routes = Routes(
        1,
        models=(
            RoutedModel("a", fallbacks=("b", "c")),
            RoutedModel("b", fallbacks=("d",)),
            RoutedModel("c"),
            RoutedModel("d"),
        ),
    )
    assert levels(routes, "a") == ["a", "b", "c", "d"]


def test_a_ring_of_fallbacks_ends_where_it_closes() -> None:
    """Each model once, whatever names whom; a fallback that is not there is left out."""
    ring = Routes(
        1,
        models=(
            RoutedModel("a", fallbacks=("b", "gone", "b")),
            RoutedModel("b", fallbacks=("c",)),
            RoutedModel("c", fallbacks=("a", "c")),
        ),
    )
    assert levels(ring, "a") == ["a", "b", "c"]
    assert levels(ring, "c") == ["c", "a", "b"]


def test_a_partial_snapshot_adds_and_corrects() -> None:
    """What it names is as it says, a drain too; what it does not name stays as it was."""
    held = Routes(5, models=(RoutedModel("a"),), endpoints=(endpoint("a/1"), endpoint("a/2")))
    told = Routes(6, partial=True, models=(RoutedModel("b"),), endpoints=(endpoint("a/2", draining=True),))
    both = merged(held, told)
    assert (both.version, both.partial) == (6, False)
    assert [model.name for model in both.models] == ["a", "b"]
    assert both.endpoints == (endpoint("a/1"), endpoint("a/2", draining=True))
    assert merged(held, Routes(7)) == Routes(7)
