"""Which engines a profile's versions let it run on."""

import pydantic
import pytest

from llmgw.catalog.fields import Versions
from llmgw.catalog.versions import permits, possible


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("", "0.11.0"),
        (">=0.30", ""),
        (">=0.30", "unknown"),
        (">=0.30", "usage: vllm [-h] 1.0"),
        (">=0.30", "0.30"),
        (">=0.30", "0.30.0"),
        (">=0.30", "0.30.0rc1+cu130"),
        (">=0.9", "0.30.1"),
        (">=0.21, <0.30", "0.29.4"),
        ("==0.33", "0.33.1"),
        ("==0.33.0", "0.33"),
        ("<=0.33", "0.33.1"),
        (">0.33", "0.33.1"),
        ("!=0.33", "0.33.1"),
        (">=4000", "version: 4567 (0c1e5709)"),
        (">=4000", "b4567"),
    ],
)
def test_a_version_that_will_do(wanted: str, told: str) -> None:
    """Inside every bound; and where nobody knows the version, which excludes nothing."""
    assert permits(wanted, told)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (">=0.30", "0.11.0"),
        (">=0.30", "0.3"),
        (">=0.30.1", "0.30"),
        (">=0.21,<0.30", "0.30.0"),
        ("==0.33", "0.34.0"),
        ("==0.33.1", "0.33"),
        ("!=0.33", "0.33.0"),
        ("<0.33", "0.33.1"),
        (">0.33", "0.33.0"),
        (">=4600", "version: 4567 (0c1e5709)"),
        (">=" + "9" * 9000, "0.33"),
    ],
)
def test_a_version_that_will_not(wanted: str, told: str) -> None:
    """Outside one bound is outside."""
    assert not permits(wanted, told)


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        ">=0.21",
        "<0.1",
        ">0.33,<0.34",
        ">0.33,<=0.33",
        ">=0.30,<=0.30",
        "==0.33,>=0.33.1",
        ">=1,!=1",
        "!=0",
    ],
)
def test_bounds_that_leave_a_version(wanted: str) -> None:
    """However little is between them."""
    assert possible(wanted)


@pytest.mark.parametrize(
    "wanted", [">=0.30,<0.20", ">0.33.1,<0.33.1", "==0.33,==0.34", ">=1,<1", "<0", "==0.33,<0.33"]
)
def test_bounds_that_leave_none(wanted: str) -> None:
    """A profile that asks for it would fit nowhere, ever: its author is told."""
    assert not possible(wanted)
    with pytest.raises(pydantic.ValidationError, match="no version is inside all of these bounds"):
        pydantic.TypeAdapter(Versions).validate_python(wanted)
