"""Prometheus' text format. Pure: what is counted, and which labels it has, is its callers' business.

Used by the metrics of the gateway, the control plane and the agent; `transport.scrape` serves the page.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

Series = Mapping[Any, float]
"""By label values, tuples of text in the order of the labels; () where there are none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series. `labels` are the names of what `series` is by."""

    name: str
    kind: Literal["counter", "gauge"]
    said: str
    series: Series
    labels: tuple[str, ...] = ()


def page(prefix: str, families: Iterable[Family]) -> bytes:
    """The whole page, each name behind `prefix`."""
    lines = [line for family in families for line in _lines(prefix + family.name, family)]
    return ("\n".join(lines) + "\n").encode()


def _lines(name: str, family: Family) -> Iterator[str]:
    yield f"# HELP {name} {family.said}"
    yield f"# TYPE {name} {family.kind}"
    for key, value in sorted(family.series.items()):
        pairs = ",".join(
            f'{label}="{_quoted(part)}"' for label, part in zip(family.labels, key, strict=False)
        )
        yield f"{name}{{{pairs}}} {_number(value)}" if key else f"{name} {_number(value)}"


def _number(value: float) -> str:
    """Whole numbers in full: a version of a table has more digits than a float shows."""
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
