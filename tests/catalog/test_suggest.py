"""A slip of the fingers is recognised; another word is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.catalog.suggest import closest, did_you_mean, distance

NAMES = ["tensor_parallel", "pipeline_parallel", "data_parallel", "nodes", "min", "max"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("tensor_paralel", "tensor_parallel"),
        ("Tensor_Parallel", "tensor_parallel"),
        ("nodse", "nodes"),
        ("node", "nodes"),
        ("mni", "min"),
        ("replicas", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_nearest_name(word: str, name: str | None) -> None:
    """One letter more, less, other or swapped, or another case, is near; what is far is not offered."""
    assert closest(word, NAMES) == name


def test_the_offer_is_a_question() -> None:
    """People are asked, not told; nothing near, nothing asked."""
    assert did_you_mean("nodse", NAMES) == "did you mean `nodes`?"
    assert did_you_mean("replicas", NAMES) == ""


@given(some.text("abc", max_size=6), some.text("abc", max_size=6))
def test_distance_is_a_distance(one: str, other: str) -> None:
    """Equal is 0, order does not matter, and giving up early never says nearer."""
    assert (distance(one, other, 9) == 0) == (one == other)
    assert distance(one, other, 9) == distance(other, one, 9)
    assert distance(one, other, 1) >= min(distance(one, other, 9), 2)
