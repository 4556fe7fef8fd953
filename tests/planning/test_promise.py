"""What a plan promised: the same or a part of it may be done, anything else is another plan and says so."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from llmgw.planning.promise import Line, Promise, compare, promise
from tests.planning.story import Story, a_catalog, a_model, a_node
from tests.planning.test_plan import plan, served

keys = st.tuples(
    st.sampled_from(("+", "-", "+/-", "~")),
    st.sampled_from(("qwen", "phi")),
    st.sampled_from(("scaled", "model_added", "engine_args_changed")),
    st.sampled_from(("g1", "g2")),
    st.sampled_from(("said", "said otherwise")),
)
bags = st.dictionaries(keys, st.integers(1, 3), max_size=5)


def of(bag: dict[tuple[str, str, str, str, str], int]) -> Promise:
    return Promise("catalog", 1, tuple(Line(*key, count) for key, count in sorted(bag.items())))


def loose(bag: dict[tuple[str, str, str, str, str], int]) -> collections.Counter[tuple[str, ...]]:
    """Counted by (action, model, code, generation), and by its words where the code is no scaling."""
    found: collections.Counter[tuple[str, ...]] = collections.Counter()
    for key, count in bag.items():
        found[(*key[:4], "" if key[2] == "scaled" else key[4])] += count
    return found


@given(bags, bags)
def test_a_part_may_go_and_anything_more_may_not(shown: dict, now: dict) -> None:  # type: ignore[type-arg]
    """Stale exactly where something is there more often than it was shown; what differs adds up."""
    found = compare(of(shown), of(now))
    assert found.stale == (not loose(now) <= loose(shown))
    assert sum(line.count for line in found.appeared) == (loose(now) - loose(shown)).total()
    assert sum(line.count for line in found.done) == (loose(shown) - loose(now)).total()
    assert len(found.lines) == len(found.appeared) + len(found.done)


@given(bags, st.data())
def test_what_is_left_of_a_plan_is_never_stale(shown: dict, data: st.DataObject) -> None:  # type: ignore[type-arg]
    """However much of it is done already, the rest may go on."""
    left = {key: data.draw(st.integers(0, count)) for key, count in shown.items()}
    assert not compare(of(shown), of({key: count for key, count in left.items() if count})).stale


@given(bags)
def test_a_promise_is_itself(shown: dict) -> None:  # type: ignore[type-arg]
    """Compared with itself nothing differs, and its digest does not depend on the order of lines."""
    whole = of(shown)
    assert compare(whole, whole).lines == ()
    assert whole.digest == Promise("catalog", 7, tuple(reversed(whole.lines))).digest


def test_a_promise_has_the_identity_of_its_plan() -> None:
    """What is kept of a plan in short is known by the plan's own digest."""
    made = plan(served(), a_catalog(a_model(replicas=3), a_model("phi", replicas=2)))
    assert promise(made).digest == made.digest
    assert {(line.symbol, line.model, line.count) for line in promise(made).lines} == {
        ("+", "qwen", 2),
        ("+", "phi", 2),
    }


def test_scaled_half_way_is_a_part() -> None:
    """From one to three, while somebody made it two: one is left to add, and nothing is new."""
    target = a_catalog(a_model(replicas=3))
    shown = promise(plan(served(), target))
    found = compare(shown, promise(plan(served(replicas=2), target)))
    assert not found.stale
    assert [line.count for line in found.done] == [1]


def test_scaled_the_other_way_is_another_plan() -> None:
    """Somebody made it five meanwhile: to stop two is nothing that anybody was shown."""
    target = a_catalog(a_model(replicas=3))
    story = Story(a_node("n0"), a_node("n1"), catalog=a_catalog(a_model(replicas=5)))
    story.runs()
    found = compare(promise(plan(served(), target)), promise(plan(story, target)))
    assert found.stale
    assert found.lines[0] == "not in yours   - 2 x qwen  scaling.min 5 -> 3; scaling.max 5 -> 3"


def test_a_place_that_is_gone_is_not_done() -> None:
    """What was to be created and fits nowhere now is no part of the plan that is done."""
    target = a_catalog(a_model(replicas=3))
    shown = promise(plan(served(), target))
    small = Story(a_node("n0", gpus=2), catalog=a_catalog(a_model()))
    small.runs()
    found = compare(shown, promise(plan(small, target)))
    assert found.stale
    assert found.appeared[0].symbol == "!"


def test_another_catalog_is_another_plan() -> None:
    """The same actions for other bytes are not what was read."""
    whole = of({("+", "qwen", "model_added", "g1", "new model"): 1})
    other = Promise("other", 1, whole.lines)
    assert compare(whole, other).stale
    assert compare(whole, other).lines == ("not in yours   the catalog itself is another",)
