"""What the gateway counts, and the Prometheus text of it.

Counted by `gateway.exchange` and `gateway.front`, read at `transport.scrape`. The only labels are
names of the catalog, status codes and fixed words: no client can mint a series.
"""

import collections
import dataclasses
from collections.abc import Collection, Iterable

from llmgw.kit.exposition import Family, Series, page

OTHER = "other"
"""The model label of a request that named no model of the catalog."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gauge:
    """A value of the moment. `series` is by (model,), or () where it has none."""

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
        counters = (
            _counter("requests", "Requests answered, by the status sent.", ("model", "code"), self.requests),
            _counter("retries", "Attempts after the first.", ("model",), self.retries),
            _counter("fallbacks", "Requests sent on to a fallback.", ("model",), self.fallbacks),
            _counter(
                "broken_answers", "Answers that did not end as they should.", ("model", "how"), self.broken
            ),
        )
        moment = (Family(each.name, "gauge", each.said, each.series, ("model",)) for each in gauges)
        return page("llmgw_gateway_", (*counters, *moment))


def _counter(name: str, said: str, labels: tuple[str, ...], series: Series) -> Family:
    return Family(f"{name}_total", "counter", said, series, labels)
