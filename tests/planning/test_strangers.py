"""Cards that processes of others are on: what is placed beside them, and what people are told."""

import dataclasses

from llmgw.fleet.node import Gpu, Holder, NodeInfo
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

GIB = 1 << 30
CARD = Gpu("c0", "H100", 80 * GIB)
WHOSE = Holder(4177, 79 * GIB, "python3", bars=True)


def node(card: Gpu) -> NodeInfo:
    return dataclasses.replace(a_node("n0"), gpus=(card,))


def small(card: Gpu) -> Story:
    """One node with this card, and a model that wants one such."""
    profile = a_profile("one", gpus_per_node=1)
    return Story(node(card), catalog=a_catalog(a_model(profiles=("one",)), profiles=(profile,)))


def test_a_card_that_a_stranger_fills_takes_nothing_until_it_has_gone() -> None:
    """The refusal names its pid and what it holds; the next word of a free card is the next place."""
    taken = dataclasses.replace(CARD, foreign=79 * GIB, holders=(WHOSE,))
    story = small(dataclasses.replace(taken, healthy=False, said=taken.strangers))
    story.decides()
    assert story.last is not None
    (item,) = story.last.unplaced
    assert any("79 GiB held by pid 4177 (python3), not llmgw's" in reason.said for reason in item.reasons)
    story.registers(node(CARD)).runs()
    assert len(story.ready()) == 1


def test_what_fits_beside_a_small_stranger_is_placed() -> None:
    """A desktop's 300 MiB are subtracted, and bar nothing."""
    desktop = dataclasses.replace(CARD, foreign=300 << 20, holders=(Holder(812, 300 << 20, "Xorg"),))
    story = small(desktop)
    story.runs()
    assert len(story.ready()) == 1
