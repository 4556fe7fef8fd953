"""What the gateway counts, and the Prometheus text of it.

Counted by `gateway.exchange` and `gateway.front`, read by `gateway.scrape`. The only labels are
names of the catalog, status codes and fixed words: no client can mint a series.
"""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

OTHER = "other"
"""The model label of a request that named no model of the catalog."""

Series = Mapping[tuple[str, ...], float]
"""By label values; of a gauge by (model,), or () where it has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gauge:
    """A value of the moment."""

    name: str
    said: str
    series: Series


class Metrics:
    """Counters by (model, …)."""

    def __init__(self) -> None:
        self.requests: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.retries: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.fallbacks: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.broken: collections.Counter[tuple[str, ...]] = collections.Counter()

    def keep(self, models: Collection[str]) -> None:
        """Forget the models that left the catalog."""
        for counter in (self.requests, self.retries, self.fallbacks, self.broken):
            for key in [key for key in counter if key[0] not in models and key[0] != OTHER]:
                del counter[key]

    def text(self, gauges: Iterable[Gauge]) -> bytes:
        """Everything in Prometheus' text format, with the gauges of the moment."""
        lines = [
            *_counter("requests", "Requests answered, by the status sent.", ("model", "code"), self.requests),
            *_counter("retries", "Attempts after the first.", ("model",), self.retries),
            *_counter("fallbacks", "Requests sent on to a fallback.", ("model",), self.fallbacks),
            *_counter(
                "broken_answers", "Answers that did not end as they should.", ("model", "how"), self.broken
            ),
        ]
        for gauge in gauges:
            name = f"llmgw_gateway_{gauge.name}"
            lines += _family(name, "gauge", gauge.said, ("model",), gauge.series)
        return ("\n".join(lines) + "\n").encode()


def _counter(name: str, said: str, labels: tuple[str, ...], series: Series) -> Iterator[str]:
    return _family(f"llmgw_gateway_{name}_total", "counter", said, labels, series)


def _family(name: str, kind: str, said: str, labels: tuple[str, ...], series: Series) -> Iterator[str]:
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} {kind}"
    for key, value in sorted(series.items()):
        pairs = ",".join(f'{label}="{_quoted(part)}"' for label, part in zip(labels, key, strict=False))
        yield f"{name}{{{pairs}}} {value:g}" if key else f"{name} {value:g}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
