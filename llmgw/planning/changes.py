"""Which entries of a map are others than before, so that a pass costs what changed.

Used by `planning.board` on the maps of `Fleet` and `Ledger`, which are copied when they change and
whose values are frozen: another value is another object. So it is with catalogs: what was not edited is
read into the same value again.
"""

from collections.abc import Mapping
from itertools import compress, islice
from operator import is_not
from typing import TypeVar

from llmgw.catalog.model import Catalog

K = TypeVar("K")
V = TypeVar("V")


def changed(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    """Keys that came, went, or have another value object now.

    A value must stand under one key only. A copy keeps the order of its keys, so that two maps are
    compared in step, at some 25 ns an entry; where something went, with a look-up for each.
    """
    if old is new:
        return []
    if len(old) <= len(new):
        pairs = list(compress(zip(old, new, strict=False), map(is_not, old.values(), new.values())))
        if all(before == after for before, after in pairs):
            return [key for key, _ in pairs] + list(islice(new, len(old), None))
    return [key for key, value in new.items() if old.get(key) is not value] + [
        key for key in old if key not in new
    ]


def touched(old: Catalog, new: Catalog) -> set[str]:
    """The models of either catalog that are another value, or one of whose profiles is."""
    names = set(changed(old.models, new.models))
    profiles = set(changed(old.profiles, new.profiles))
    if profiles:
        names.update(name for name, model in new.models.items() if not profiles.isdisjoint(model.profiles))
    return names
