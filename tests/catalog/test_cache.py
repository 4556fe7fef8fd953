"""Following a catalog: the answer of a `Cache` is the answer of a fresh look, and costs what changed."""

import pathlib
import random

import pytest

from llmgw.catalog import load
from llmgw.catalog.load import Cache, check, snapshot
from llmgw.catalog.model import Catalog
from tests.catalog.samples import MODEL, PROFILE

FILES = {"m.yaml": MODEL.encode(), "p.yaml": PROFILE.encode()}


def same(one: Catalog | None, other: Catalog | None) -> bool:
    """Equal in meaning and in places."""
    if one is None or other is None:
        return one is other
    return (one.models, one.profiles, one.digest, dict(one.places)) == (
        other.models,
        other.profiles,
        other.digest,
        dict(other.places),
    )


def test_what_did_not_change_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One edited file costs one reading; an unchanged tree costs none."""
    cache = Cache()
    cache.check(FILES)
    seen: list[str] = []
    build = load.build
    monkeypatch.setattr(load, "build", lambda name, data: seen.append(name) or build(name, data))

    cache.check(dict(FILES))
    assert seen == []

    cache.check({**FILES, "m.yaml": FILES["m.yaml"] + b"protect: true\n"})
    assert seen == ["m.yaml"]


def test_a_new_neighbour_is_compared_with_the_old_ones() -> None:
    """Files that were kept are still checked against what came and went beside them."""
    cache = Cache()
    assert cache.check(FILES).catalog is not None

    without = cache.check({"m.yaml": FILES["m.yaml"]})
    assert [problem.code for problem in without.diagnostics] == ["E301"]

    assert cache.check(FILES).catalog is not None


def test_a_moved_file_is_at_its_new_place() -> None:
    """The same bytes under another name point there."""
    cache = Cache()
    cache.check(FILES)
    moved = cache.check({"teams/m.yaml": FILES["m.yaml"], "p.yaml": FILES["p.yaml"]}).catalog

    assert moved is not None
    place = moved.place("model/llama", "name")
    assert place is not None
    assert place.file == "teams/m.yaml"


def test_what_cannot_be_read_is_not_what_was_read_before(tmp_path: pathlib.Path) -> None:
    """A file that became unreadable is a problem, whatever is kept of it."""
    cache = Cache()
    cache.check(FILES)
    _, unreadable = snapshot(tmp_path / "absent")

    assert cache.check(FILES, unreadable).catalog is None
    assert cache.check(FILES).catalog is not None


SLIPS = [b"aliases: [x]\n", b"fallbacks: [llama]\n", b"protect: maybe\n", b"nodes: 2\n", b": :\n", b"a: *b\n"]


def test_a_cache_says_what_a_fresh_look_says() -> None:
    """Over a long history of random edits, removals and slips, nothing of the past shows."""
    chance = random.Random(7)
    cache, files, valid = Cache(), dict(FILES), 0
    fine = {**FILES, "n.yaml": FILES["m.yaml"].replace(b"name: llama", b"name: other")}
    for _ in range(300):
        name = chance.choice(list(fine))
        if chance.random() < 0.2:
            files.pop(name, None)
        elif chance.random() < 0.3:
            files[name] = files.get(name, b"") + chance.choice(SLIPS)
        else:
            files[name] = fine[name]
        kept, fresh = cache.check(files), check(files)
        assert list(kept.diagnostics) == list(fresh.diagnostics)
        assert same(kept.catalog, fresh.catalog)
        valid += kept.catalog is not None
    assert 0 < valid < 300
