"""The cache as the disk tells it: what is ours, what is whole, and what is left alone."""

import os
import pathlib

import pytest

from llmgw.agent import confine, manifest, space
from llmgw.agent.cache import Cache
from llmgw.agent.manifest import FileRecord, Manifest, checked_name, name_of
from llmgw.catalog.sources import cache_name, parse
from llmgw.errors import Failed
from tests.agent.entries import make_entry, make_partial

SOURCE = parse("hf://org/model@main")


def test_entries_are_listed_as_they_are_on_the_disk(tmp_path: pathlib.Path) -> None:
    """Whole and partial entries, with the size of everything that llmgw wrote for them."""
    whole = make_entry(tmp_path, SOURCE, {"a.gguf": b"x" * 100, "sub/b.json": b"{}"})
    partial = make_partial(tmp_path, parse("hf://org/other@main"), {"c.gguf": b"y" * 50})
    listed = Cache(tmp_path).list_entries()
    assert {entry.cache_name: entry.whole for entry in listed} == {
        whole.name: True,
        partial.name.removesuffix(".partial"): False,
    }
    assert {entry.source for entry in listed} == {SOURCE.canonical, "hf://org/other@main"}
    for entry, directory in zip(sorted(listed, key=lambda e: e.whole), (partial, whole), strict=True):
        files = [path for path in directory.rglob("*") if path.is_file()]
        assert entry.size == sum(path.stat().st_size for path in files)
        assert entry.modified == max(path.stat().st_mtime for path in files)


def test_what_a_fetch_claimed_is_told(tmp_path: pathlib.Path) -> None:
    """Blocks that were allocated ahead are not free, long before their bytes come; the file is as long as those."""
    partial = make_partial(tmp_path, SOURCE, {"a.gguf": b"x" * 50})
    with (partial / "files" / "a.gguf").open("r+b") as file:
        space.claim(file.fileno(), 1 << 20)

    (entry,) = Cache(tmp_path).list_entries()

    assert entry.size < 4096
    assert entry.claimed >= 1 << 20


def test_what_llmgw_did_not_make_is_no_entry(tmp_path: pathlib.Path) -> None:
    """Foreign files, links, empty directories and directories that claim another source are not listed."""
    real = make_entry(tmp_path / "elsewhere", SOURCE, {"a.gguf": b"x"})
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ("1" * 64)).mkdir()
    (tmp_path / ("2" * 64)).write_text("a file")
    (tmp_path / SOURCE_NAME).symlink_to(real)
    make_entry(tmp_path, SOURCE, {"a.gguf": b"x"}, name="3" * 64)
    (tmp_path / ("4" * 64)).mkdir()
    (tmp_path / ("4" * 64) / "manifest.json").write_bytes(b"\0not json")
    (tmp_path / ("5" * 64)).mkdir()
    os.mkfifo(tmp_path / ("5" * 64) / "manifest.json")
    assert Cache(tmp_path).list_entries() == ()


SOURCE_NAME = cache_name(SOURCE)


@pytest.mark.parametrize("harm", ["short", "gone", "link"])
def test_an_entry_that_lost_something_is_not_whole(harm: str, tmp_path: pathlib.Path) -> None:
    """Whole means that every file is there at its size, looked up each time."""
    entry = make_entry(tmp_path, SOURCE, {"a.gguf": b"x" * 100})
    cache = Cache(tmp_path)
    assert cache.whole(SOURCE)
    file = entry / "files" / "a.gguf"
    match harm:
        case "short":
            os.truncate(file, 99)
        case "gone":
            file.unlink()
        case "link":
            file.rename(tmp_path / "moved")
            file.symlink_to(tmp_path / "moved")
    assert cache.whole(SOURCE) is None
    assert [listed.whole for listed in cache.list_entries()] == [False]
    with pytest.raises(Failed, match="cannot use the weights"):
        cache.model_path(SOURCE)


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("m.gguf",), "files/m.gguf"),
        (("m.safetensors",), "files/m.safetensors"),
        (("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), "files/m-00001-of-00002.gguf"),
        (("config.json", "m.safetensors"), "files"),
        (("config.json", "m.gguf"), "files"),
    ],
)
def test_an_engine_is_given_a_file_or_a_directory(
    names: tuple[str, ...], path: str, tmp_path: pathlib.Path
) -> None:
    """A GGUF is a file, a repository with a config is a directory."""
    entry = make_entry(tmp_path, SOURCE, dict.fromkeys(names, b"x"))
    assert Cache(tmp_path).model_path(SOURCE) == entry / path


def test_a_removal_that_died_is_finished_at_the_next_start(tmp_path: pathlib.Path) -> None:
    """Trash of ours goes; names that only look like it stay."""
    (tmp_path / f".trash-{SOURCE_NAME}-0a1b2c3d" / "files").mkdir(parents=True)
    (tmp_path / f".trash-{SOURCE_NAME}.partial-0a1b2c3d").mkdir()
    stays = [f".trash-{SOURCE_NAME}", ".trash-mine", f".kept-{SOURCE_NAME}-0a1b2c3d"]
    for name in stays:
        (tmp_path / name).mkdir()
    Cache(tmp_path).sweep()
    assert sorted(child.name for child in tmp_path.iterdir()) == sorted(stays)


def test_a_cache_that_was_replaced_is_noticed(tmp_path: pathlib.Path) -> None:
    """An unmounted or exchanged directory is not the one that was opened."""
    cache = Cache(tmp_path / "cache")
    assert cache.in_place()
    (tmp_path / "cache").rename(tmp_path / "away")
    assert not cache.in_place()
    (tmp_path / "cache").mkdir()
    assert not cache.in_place()


def test_a_newer_manifest_is_not_understood_and_a_known_one_keeps_what_it_does_not_know(
    tmp_path: pathlib.Path,
) -> None:
    """Another format is no manifest; another key is no obstacle."""
    whole = Manifest(source="s", files=(FileRecord(name="a", size=1, sha256="0"),), fetched_at="2026-01-01")
    manifest.write(tmp_path, whole)
    assert manifest.read(tmp_path) == whole
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(
        text.replace('"format":1', '"format":2').replace('"format": 1', '"format": 2')
    )
    assert manifest.read(tmp_path) is None
    (tmp_path / "manifest.json").write_text(text.replace("{", '{"newer": 1,', 1))
    assert manifest.read(tmp_path) is not None
    assert name_of(SOURCE.canonical) == SOURCE_NAME


def test_a_manifest_cannot_name_what_is_outside(tmp_path: pathlib.Path) -> None:
    """A manifest is data: a path that leaves its entry makes it none."""
    whole = Manifest(source="s", files=(FileRecord(name="a", size=1, sha256="0"),), fetched_at="2026-01-01")
    manifest.write(tmp_path, whole)
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace('"a"', '"../../etc/passwd"'))
    assert manifest.read(tmp_path) is None
    assert checked_name("a/b..c/.d") == "a/b..c/.d"


@pytest.mark.parametrize(
    "opening", [confine.open_below, lambda *a: confine.open_stepwise(*a, os.O_RDONLY | os.O_DIRECTORY)]
)
@pytest.mark.parametrize(
    "name", ["..", "a/..", "a/../..", "/", "/etc", ".", "link", "link/x", "a/link", "absent"]
)
def test_nothing_outside_is_ever_opened(opening: object, name: str, tmp_path: pathlib.Path) -> None:
    """By openat2 and by single steps alike: no link, no dots, no absolute path."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (tmp_path / "out" / "x").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "out")
    (root / "a" / "link").symlink_to(root / "a" / "b")
    fd = confine.open_root(root)
    try:
        os.close(opening(fd, "a/b"))  # type: ignore[operator]
        if (name, opening) in ((".", confine.open_below), ("a/..", confine.open_below)):
            return  # stays beneath: openat2 allows it, and no name of ours holds dots
        with pytest.raises(OSError, match=r"\["):
            opening(fd, name)  # type: ignore[operator]
    finally:
        os.close(fd)
