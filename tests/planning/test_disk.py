"""Room on a node's disk: what a fetch has claimed is not free, and is not taken a second time."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from llmgw.fleet import events, inventory
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.planning.placement import DISK_RESERVE, Request, Site, disk_fits
from tests.planning.story import Story, a_catalog, a_model, a_node, kinds

GIB = 1 << 30
BIG, SMALL = a_model("big"), a_model("small")
SIZES = {BIG.cache_name: 80 * GIB, SMALL.cache_name: 60 * GIB}


def _story(disk: int) -> Story:
    story = Story(a_node("n", disk_free=disk), catalog=a_catalog(BIG))
    story.desired = dataclasses.replace(story.desired, sizes=SIZES)
    return story


def _claims(story: Story, free: int, came: int, claimed: int) -> Story:
    """The node reports a fetch of `BIG` that is under way, and what is free beside it."""
    entry = CachedWeights(BIG.cache_name, BIG.source.canonical, came, whole=False, claimed=claimed)
    info = dataclasses.replace(story.fleet.nodes["n"].info, disk_free=free, weights=(entry,))
    return story.hears(events.Reported("n", (), info))


def test_a_fetch_that_failed_is_taken_up_where_its_bytes_are() -> None:
    """Its claim fills the disk: the node is the one place where the rest of it does fit."""
    story = _story(100 * GIB)
    (first,) = story.decides()
    story.says(first.spec.key, "fetching")
    _claims(story, free=20 * GIB, came=30 * GIB, claimed=80 * GIB)
    story.says(first.spec.key, "failed", reason="cannot fetch: no byte for 30 s")

    assert kinds(story.runs()) == ["stop"]
    assert kinds(story.after(60.0).runs()) == ["assign", "start"]


def test_what_a_fetch_claimed_is_subtracted_once() -> None:
    """Of 200 GiB one model has claimed 80: another of 60 fits beside it, one more does not."""
    story = _story(200 * GIB)
    (first,) = story.decides()
    story.says(first.spec.key, "fetching")
    _claims(story, free=120 * GIB, came=10 * GIB, claimed=80 * GIB)

    third = a_model("third")
    story.adopts(a_catalog(BIG, SMALL, third))
    story.desired = dataclasses.replace(story.desired, sizes=SIZES | {third.cache_name: 60 * GIB})
    (second,) = story.decides()

    assert story.last is not None
    assert second.spec.model == "small"
    (unplaced,) = story.last.unplaced
    assert [str(reason) for reason in unplaced.reasons] == ["n: 63.4 GB of disk free, 64.4 GB to fetch"]


def test_what_nobody_has_claimed_yet_is_booked() -> None:
    """Between an order and its first byte the disk looks free."""
    story = _story(100 * GIB).adopts(a_catalog(BIG, SMALL))
    assert [action.spec.model for action in story.decides()] == ["big"]


def test_weights_are_fetched_once_for_all_copies_on_a_node() -> None:
    """The second copy takes nothing of the disk."""
    story = _story(100 * GIB).adopts(a_catalog(dataclasses.replace(BIG, scaling=a_model(replicas=2).scaling)))
    assert kinds(story.decides()) == ["assign", "assign"]


ENTRIES = st.builds(lambda came, more: (came, came + more), st.integers(0, 40), st.integers(0, 40))


@given(
    st.integers(0, 200),
    st.dictionaries(st.sampled_from("abcd"), ENTRIES),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 80)),
    st.sampled_from("abcd"),
    st.integers(1, 80),
)
def test_it_fits_where_all_of_it_would_lie(
    capacity: int,
    begun: dict[str, tuple[int, int]],
    arriving: dict[str, int],
    name: str,
    size: int,
) -> None:
    """In truth a disk holds everything that lies there and the rest of what comes; one source comes once."""
    models = {letter: a_model(letter) for letter in "abcd"}
    sizes = arriving | {name: max(size, arriving.get(name, 0))}
    on_disk = {letter: min(claimed, sizes.get(letter, claimed)) for letter, (_, claimed) in begun.items()}
    lying = sum(on_disk.values())
    info = NodeInfo(
        "n",
        "n",
        disk_free=capacity * GIB - lying * GIB + DISK_RESERVE,
        weights=tuple(
            CachedWeights(
                models[letter].cache_name,
                "",
                min(came, on_disk[letter]) * GIB,
                whole=False,
                claimed=on_disk[letter] * GIB,
            )
            for letter, (came, _) in begun.items()
        ),
    )
    story = Story(a_node("n"), catalog=a_catalog(*models.values()))
    specs = {action.spec.model: action.spec for action in story.decides()}
    room = inventory.room(
        info, (dataclasses.replace(specs[letter], source_bytes=sizes[letter] * GIB) for letter in arriving)
    )
    request = Request(models[name], specs[name].profile, "", models[name].cache_name, sizes[name] * GIB)

    in_truth = lying + sum(sizes[letter] - on_disk.get(letter, 0) for letter in sizes)

    assert (disk_fits(Site(room, "Ready"), request) == "") == (in_truth <= capacity)
