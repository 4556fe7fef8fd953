"""What starts and fetches took, as the control plane saw it; kept within bounds."""

import dataclasses

from llmgw.control.measuring import KEPT, MOST, Measuring
from llmgw.fleet import events
from llmgw.fleet.shard import Progress, ShardStatus, State
from tests.planning.story import Story, a_catalog, a_model, a_node


def watched(story: Story, measuring: Measuring, state: State, after: float = 0.0) -> None:
    """The one shard of the story is reported in `state`, after so many seconds, and it is seen."""
    story.now += after
    ((key, shard),) = story.fleet.shards.items()
    event = events.Reported(shard.spec.node, (ShardStatus(*key, state),))
    measuring.saw(story.fleet, event, story.now)
    story.fleet = story.fleet.apply(event, story.now)


def test_a_start_is_measured_from_its_exec() -> None:
    """From starting to ready, whatever was in between; the fetch before it does not count."""
    story, measuring = Story(a_node("n0"), catalog=a_catalog(a_model())), Measuring()
    story.decides()
    ((_, shard),) = story.fleet.shards.items()
    watched(story, measuring, "fetching", 1.0)
    held = Progress(shard.spec.cache_name, 2_000_000_000)
    story.hears(events.Progressed("n0", (held,)))
    watched(story, measuring, "held", 4.0)
    watched(story, measuring, "starting", 100.0)
    watched(story, measuring, "started", 30.0)
    watched(story, measuring, "ready", 11.0)
    watched(story, measuring, "ready", 9.0)
    seen = measuring.seen
    assert {key: (round(s.middle), s.times) for key, s in seen.starts.items()} == {
        shard.spec.generation: (41, 1)
    }
    assert {key: (s.middle, s.times) for key, s in seen.fetches.items()} == {"n0": (5e8, 1)}


def test_a_start_that_failed_says_nothing_about_how_long_one_takes() -> None:
    """Only what became ready is measured, and a try is not added to the next."""
    story, measuring = Story(a_node("n0"), catalog=a_catalog(a_model())), Measuring()
    story.decides()
    watched(story, measuring, "held")
    watched(story, measuring, "starting")
    watched(story, measuring, "failed", 500.0)
    assert not measuring.seen.starts


def test_what_is_measured_is_bounded() -> None:
    """A thousand generations are remembered, and the newest of each."""
    story, measuring = Story(a_node("n0"), catalog=a_catalog(a_model())), Measuring()
    story.decides()
    ((key, shard),) = story.fleet.shards.items()
    for number in range(MOST + 10):
        spec = dataclasses.replace(shard.spec, generation=f"g{number}")
        new = dataclasses.replace(shard, spec=spec)
        for _ in range(KEPT + 3 if number > MOST else 1):
            story.fleet = dataclasses.replace(story.fleet, shards={key: new})
            watched(story, measuring, "starting")
            watched(story, measuring, "ready", 1.0)
    starts = measuring.seen.starts
    assert len(starts) == MOST
    assert starts[f"g{MOST + 9}"].times == KEPT
    assert "g0" not in starts
