"""Following a catalog: the answer of a `Cache` is the answer of a fresh look, and costs what changed."""

import gc
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


def test_what_was_read_counts_as_old() -> None:
    """The collector's next look at what is young does not go through the whole catalog."""
    checked = Cache().check(FILES)

    assert gc.isenabled()
    assert gc.is_tracked(checked.catalog)
    assert all(each is not checked.catalog for each in gc.get_objects(generation=0))


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


def test_an_edit_is_compared_with_the_names_of_the_others_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps its names owes the others nothing new: they are not looked at, and what is wrong is found."""
    cache, whole = Cache(), list[int]()
    book = load.book
    monkeypatch.setattr(load, "book", lambda written: whole.append(len(written)) or book(written))
    other = FILES["m.yaml"].replace(b"name: llama", b"name: other")
    first = cache.check({**FILES, "n.yaml": other}).catalog
    for end, code in (
        (b"protect: true\n", ""),
        (b"aliases: [second]\n", ""),
        (b"fallbacks: [llama]\n", "E301"),
        (b"", ""),
        (b"aliases: [llama]\n", "E304"),
    ):
        files = {**FILES, "n.yaml": other + end}
        if code == "E301":
            files["n.yaml"] = files["n.yaml"].replace(b"profiles: [", b"profiles: [none, ")
        whole.clear()
        checked = cache.check(files)
        assert [problem.code for problem in checked.diagnostics] == ([code] if code else [])
        assert (len(whole) == 0) == end.startswith((b"protect", b"aliases: [second"))
    assert first is not None
    assert first.models["other"].aliases == ()


def test_equal_names_of_two_kinds_are_in_one_order() -> None:
    """A model and a profile of one name: which file comes first means nothing."""
    model = b"kind: model\nname: one\nsource: file:///w\nprofiles: [one]\n"
    profile = FILES["p.yaml"].replace(b"name: h100-tp4", b"name: one")
    assert b"name: one" in profile
    first = check({"a.yaml": model, "b.yaml": profile}).catalog
    moved = check({"b.yaml": model, "a.yaml": profile}).catalog
    assert first is not None
    assert moved is not None
    assert first.digest == moved.digest


SLIPS = [b"aliases: [x]\n", b"fallbacks: [llama]\n", b"protect: maybe\n", b"nodes: 2\n", b": :\n", b"a: *b\n"]


def test_a_cache_says_what_a_fresh_look_says() -> None:
    """Over a long history of random edits, removals and slips, nothing of the past shows."""
    chance = random.Random(7)
    cache, files, valid = Cache(), dict(FILES), 0
    other = FILES["m.yaml"].replace(b"name: llama", b"name: other")
    fine = {**FILES, "n.yaml": other, "o.yaml": other.replace(b"other", b"third")}
    ends = [
        b"",
        b"protect: true\n",
        b"aliases: [y]\n",
        b"aliases: [y, z]\n",
        b"fallbacks: [other]\n",
        b"fallbacks: [y]\n",
    ]
    for _ in range(300):
        name = chance.choice(list(fine))
        if chance.random() < 0.1:
            files.pop(name, None)
        elif chance.random() < 0.2:
            files[name] = files.get(name, b"") + chance.choice(SLIPS)
        else:
            files[name] = fine[name] + (chance.choice(ends) if name != "p.yaml" else b"")
        kept, fresh = cache.check(files), check(files)
        assert list(kept.diagnostics) == list(fresh.diagnostics)
        assert same(kept.catalog, fresh.catalog)
        valid += kept.catalog is not None
    assert 25 < valid < 250
