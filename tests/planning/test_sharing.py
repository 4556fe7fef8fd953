"""Two agents on one machine that give out the same ports."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.planning.screen import node_rows
from llmgw.planning.sharing import of_nodes
from llmgw.planning.why_node import why_node
from tests.planning.story import Story, a_node
from tests.planning.test_screen import seen

FIRST = a_node("n0", address="10.0.0.5", ports=(20000, 20999))
SAME = a_node("n1", address="10.0.0.5", ports=(20500, 21499))


def test_both_say_it_and_nothing_is_refused() -> None:
    """The row of each names the other and the ports; `why` says it as well."""
    story = Story(FIRST, SAME, a_node("n2", address="10.0.0.6"))
    story.decides()
    rows = {row.id: row.warnings for row in node_rows(seen(story))}
    assert rows["n0"] == (
        "its ports 20500-20999 at 10.0.0.5 are n1's too: give each agent of one machine its own --ports, and each "
        "machine its own --address",
    )
    assert rows["n1"][0].startswith("its ports 20500-20999 at 10.0.0.5 are n0's too: ")
    assert rows["n2"] == ()
    assert rows["n1"][0] in why_node(seen(story), (), "n1").said


@pytest.mark.parametrize("other", [{"ports": (21000, 21999)}, {"address": "10.0.0.6"}])
def test_who_differs_shares_nothing(other: dict[str, object]) -> None:
    """Ranges beside each other, or another machine."""
    assert of_nodes((FIRST, dataclasses.replace(SAME, **other))) == {}  # type: ignore[arg-type]


RANGES = st.builds(lambda first, size: (first, first + size), st.integers(1, 40), st.integers(0, 20))


@given(st.lists(RANGES, max_size=8))
def test_everybody_is_told_whose_ports_meet_anybodys(ranges: list[tuple[int, int]]) -> None:
    """As comparing each with each would, and with a pair that does meet."""
    nodes = [a_node(f"n{i}", address="10.0.0.5", ports=each) for i, each in enumerate(ranges)]
    meets = {
        one.id: {
            o.id for o in nodes if o is not one and o.ports[0] <= one.ports[1] and one.ports[0] <= o.ports[1]
        }
        for one in nodes
    }
    said = of_nodes(nodes)
    assert said.keys() == {name for name, others in meets.items() if others}
    for name, (words,) in said.items():
        assert words.partition(" at 10.0.0.5 are ")[2].partition("'s too")[0] in meets[name]
