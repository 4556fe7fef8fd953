"""What a plan says beside its rows: pauses that end, gaps and their order, replicas under a profile that is not the first.

Called by `planning.plan`; the sentences stand with its alarms.
"""

from collections.abc import Iterable, Mapping

from llmgw.catalog.model import Catalog
from llmgw.kit.text import count
from llmgw.planning.rows import Row

MOST = 8
"""Models that one sentence names."""


def notes(rows: Iterable[Row], catalog: Catalog, paused: Mapping[str, str]) -> tuple[str, ...]:
    """What people would otherwise find out when it happens. `paused` are models with the reason."""
    rows = tuple(rows)
    return (*_pauses(rows, catalog, paused), *_gaps(rows), *_second_choices(rows, catalog))


def _pauses(rows: tuple[Row, ...], catalog: Catalog, paused: Mapping[str, str]) -> Iterable[str]:
    """A pause is about a model of the catalog: it ends where that does."""
    for name in dict.fromkeys(row.model for row in rows if row.symbol == "-"):
        if name in paused and name not in catalog.models:
            yield f"{name} is paused: {paused[name]}; it leaves the catalog, so it is stopped all the same"


def _gaps(rows: tuple[Row, ...]) -> Iterable[str]:
    models = [row.model for row in rows if row.symbol == "-/+"]
    if not models:
        return
    named = ", ".join(dict.fromkeys(models[:MOST])) + (" …" if len(models) > MOST else "")
    order = "one after the other in this order, each when the one before serves: " if len(models) > 1 else ""
    yield (
        f"{count(len(models), 'replica')} with a gap, for there is no room for old and new: {order}{named}"
    )


def _second_choices(rows: tuple[Row, ...], catalog: Catalog) -> Iterable[str]:
    for row in rows:
        model = catalog.models.get(row.model)
        if model is None or row.symbol in ("-", "~", "!", ".") or row.profile in ("", model.profiles[0]):
            continue
        yield (
            f"{row.model} gets a replica under profile {row.profile}: its first one, {model.profiles[0]}, "
            "finds no place then"
        )
