"""Which engines a profile's versions let it run on."""

import pytest

from llmgw.catalog.versions import permits


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
