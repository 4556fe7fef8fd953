"""Slips of all kinds in whole catalogs; thousands more, at a live control plane, are `lab catalog-fuzz`."""

import random

import pytest

from llmgw.catalog.load import Cache, check
from tests.lab.catalog_fuzz import examples, mutated


@pytest.mark.parametrize("seed", range(4))
def test_a_slip_is_refused_or_changes_nothing_else(seed: int) -> None:
    """Mutated catalogs are checked without an exception, by a cache as by a fresh look."""
    cache, base = Cache(), examples()
    refused = 0
    for number in range(60):
        files = mutated(base, random.Random(f"{seed}/{number}"))
        data = {name: text.encode() for name, text in files.items()}
        kept, fresh = cache.check(data), check(data)
        assert kept.diagnostics == fresh.diagnostics
        assert (kept.catalog and kept.catalog.digest) == (fresh.catalog and fresh.catalog.digest)
        refused += fresh.catalog is None
    assert 0 < refused < 60
