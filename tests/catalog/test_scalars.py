"""YAML 1.2's core schema, and nothing of YAML 1.1."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.catalog.scalars import Unclear, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("False", False), ("0", 0), ("-7", -7),
        ("+7", 7), ("0o17", 15), ("0x1F", 31), ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e6", 1e6),
        ("-1.5e-3", -0.0015),
    ],
)  # fmt: skip
def test_the_core_schema(text: str, value: object) -> None:
    """Null, booleans, whole numbers and fractions are what YAML 1.2 says."""
    found = plain(text)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "Off", "y", "1:30", "190:20:30", "1_000", "2026-01-02", "0b1", "-", "+", ".", "--x", "1.2.3",
     "6f6073b", "nULL", "tRUE", "-0x1F", "٣"],
)  # fmt: skip
def test_what_yaml_1_1_would_retype_is_text(text: str) -> None:
    """A country code, a time and a version stay what was written."""
    assert plain(text) == text


@pytest.mark.parametrize("text", ["0123", "-007", "12e4567", "1" * 19, "1" * 5000, ".inf", "-.INF", ".nan"])
def test_a_number_that_would_not_come_back_is_refused(text: str) -> None:
    """A revision of digits never turns into another one."""
    with pytest.raises(Unclear):
        plain(text)


@given(some.text(max_size=40))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    """Nothing that can be written raises anything but Unclear, and no number is infinite."""
    try:
        found = plain(text)
    except Unclear:
        return
    assert not isinstance(found, float) or math.isfinite(found)


@given(some.integers(-(10**18) + 1, 10**18 - 1) | some.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back(number: float) -> None:
    """What Python writes of a number is read as that number."""
    assert plain(repr(number)) == number
