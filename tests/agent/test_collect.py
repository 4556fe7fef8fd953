"""Removal on proof: what was listed, is ours, unchanged and idle goes; everything else stays and says why."""

import asyncio
import collections
import contextlib
import dataclasses
import fcntl
import itertools
import mmap
import os
import pathlib
import shutil
import sys
from collections.abc import Callable

import pytest

from llmgw.agent import collect
from llmgw.agent.cache import Cache
from llmgw.agent.collect import Outcome, collect_entry
from llmgw.agent.holders import holder
from llmgw.catalog.sources import cache_name, parse
from llmgw.fleet.node import CachedWeights
from tests.agent.entries import make_entry, make_partial
from tests.agent.fetching import noise, pinned, store, until
from tests.support.weights_server import Answer, WeightsServer

SOURCE = parse("hf://org/model@main")
FILES = {"a.gguf": b"x" * 1000, "sub/b.json": b"{}"}


def _listed(root: pathlib.Path) -> tuple[Cache, CachedWeights]:
    cache = Cache(root)
    (entry,) = cache.list_entries()
    return cache, entry


def _refused(outcome: Outcome, said: str) -> None:
    assert not outcome.removed
    assert said in outcome.said
    assert outcome.freed == 0


@pytest.mark.parametrize("make", [make_entry, make_partial])
def test_an_idle_entry_of_ours_goes(
    make: Callable[[pathlib.Path, object, object], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Everything that llmgw wrote for the source goes, nothing beside it, and the bytes are counted."""
    make(tmp_path, SOURCE, FILES)
    (tmp_path / "notes.txt").write_text("mine")
    cache, entry = _listed(tmp_path)
    outcome = collect_entry(cache, entry)
    assert outcome.removed
    assert outcome.freed == entry.size
    assert [child.name for child in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/etc", "notes.txt", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "/..", "0" * 64 + "\n", "0" * 64 + ".partial", ".trash-" + "0" * 64]
)  # fmt: skip
def test_a_name_that_is_none_of_ours_is_refused(name: str, tmp_path: pathlib.Path) -> None:
    """Only 64 hexadecimal digits name an entry; nothing else is even looked for."""
    make_entry(tmp_path, SOURCE, FILES)
    (tmp_path / "notes.txt").write_text("mine")
    cache, entry = _listed(tmp_path)
    _refused(collect_entry(cache, dataclasses.replace(entry, cache_name=name)), "none that llmgw gives")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("change", [{"size": 1}, {"modified": 1.0}])
def test_an_entry_that_differs_from_its_listing_is_refused(
    change: dict[str, float], tmp_path: pathlib.Path
) -> None:
    """Exactly what was shown is removed, by size and time."""
    make_entry(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    _refused(collect_entry(cache, dataclasses.replace(entry, **change)), "changed since it was listed")  # type: ignore[arg-type]


def test_an_entry_that_is_gone_is_refused(tmp_path: pathlib.Path) -> None:
    """The second of two collects finds nothing and says so."""
    make_entry(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    assert collect_entry(cache, entry).removed
    _refused(collect_entry(cache, entry), "not here any more")


def _hardlink(entry: pathlib.Path) -> None:
    os.link(entry / "files" / "a.gguf", entry.parent / "wanted-elsewhere")


def _foreign_file(entry: pathlib.Path) -> None:
    (entry / "files" / "mine.txt").write_bytes(b"")


def _foreign_link(entry: pathlib.Path) -> None:
    (entry / "files" / "mine.gguf").symlink_to("/etc/passwd")


def _file_made_link(entry: pathlib.Path) -> None:
    (entry / "files" / "sub" / "b.json").unlink()
    (entry / "files" / "sub" / "b.json").symlink_to("a.gguf")


def _other_source(entry: pathlib.Path) -> None:
    text = (entry / "manifest.json").read_text()
    (entry / "manifest.json").write_text(text.replace("org/model", "org/other"))


def _no_manifest(entry: pathlib.Path) -> None:
    (entry / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_hardlink, "2 hard links"),
        (_foreign_file, "which llmgw did not fetch"),
        (_foreign_link, "which llmgw did not fetch"),
        (_file_made_link, "no regular file"),
        (_other_source, "does not say of itself"),
        (_no_manifest, "does not say of itself"),
    ],
)
def test_what_is_not_only_ours_stays(
    harm: Callable[[pathlib.Path], None], said: str, tmp_path: pathlib.Path
) -> None:
    """Links, strangers' files and a manifest that does not fit keep the whole entry."""
    path = make_entry(tmp_path, SOURCE, FILES)
    harm(path)
    cache = Cache(tmp_path)
    with contextlib.ExitStack() as opened:
        fd = opened.enter_context(collect.confine.opened_below(cache.fd, path.name))
        size, modified = collect.measure(collect.confine.walk(fd))
    before = sorted(str(each) for each in tmp_path.rglob("*"))
    _refused(collect_entry(cache, CachedWeights(path.name, "", size, modified)), said)
    assert sorted(str(each) for each in tmp_path.rglob("*")) == before


def test_a_link_in_the_place_of_an_entry_is_refused(tmp_path: pathlib.Path) -> None:
    """An operator's link to a directory that looks right is not followed."""
    real = make_entry(tmp_path / "real", SOURCE, FILES)
    _, entry = _listed(tmp_path / "real")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / real.name).symlink_to(real)
    _refused(collect_entry(Cache(tmp_path / "cache"), entry), "no directory of ours")
    assert (real / "files" / "a.gguf").exists()


def test_an_open_file_keeps_its_entry(tmp_path: pathlib.Path) -> None:
    """Open or mapped by any process: refused with its pid; closed: removed."""
    path = make_entry(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    with (path / "files" / "a.gguf").open("rb") as file:
        _refused(collect_entry(cache, entry), f"open by pid {os.getpid()} (")
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    _refused(collect_entry(cache, entry), f"open by pid {os.getpid()} (")
    mapped.close()
    assert collect_entry(cache, entry).removed


def test_a_file_opened_at_the_last_moment_keeps_its_entry(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens between the check and the rename is seen after it, and the entry is put back."""
    path = make_entry(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    rename, opened = collect.confine.rename_new, []

    def open_then_rename(root: int, old: str, new: str) -> None:
        if not opened:
            opened.append((path / "files" / "a.gguf").open("rb"))
        rename(root, old, new)

    monkeypatch.setattr("llmgw.agent.confine.rename_new", open_then_rename)
    _refused(collect_entry(cache, entry), "open by pid")
    assert opened
    opened[0].close()
    assert cache.list_entries() == (entry,)


def test_a_directory_that_takes_the_place_of_a_checked_one_is_put_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between check and rename another directory gets the name: what was moved is not what was checked."""
    path = make_entry(tmp_path / "cache", SOURCE, FILES)
    cache, entry = _listed(tmp_path / "cache")
    rename, swapped = collect.confine.rename_new, []

    def swap_then_rename(root: int, old: str, new: str) -> None:
        if not swapped:
            swapped.append(path.rename(tmp_path / "moved"))
            make_entry(tmp_path / "cache", SOURCE, {"a.gguf": b"somebody else's"})
        rename(root, old, new)

    monkeypatch.setattr("llmgw.agent.confine.rename_new", swap_then_rename)
    _refused(collect_entry(cache, entry), "another directory took its place")
    assert (path / "files" / "a.gguf").read_bytes() == b"somebody else's"
    assert (tmp_path / "moved" / "files" / "a.gguf").exists()


def test_a_name_that_is_taken_again_is_not_overwritten(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be put back is kept under a name that no sweep removes."""
    path = make_entry(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    rename, opened = collect.confine.rename_new, []

    def take_the_name(root: int, old: str, new: str) -> None:
        if not opened:
            opened.append((path / "files" / "a.gguf").open("rb"))
            rename(root, old, new)
            make_entry(tmp_path, SOURCE, {"a.gguf": b"fetched meanwhile"})
        else:
            rename(root, old, new)

    monkeypatch.setattr("llmgw.agent.confine.rename_new", take_the_name)
    _refused(collect_entry(cache, entry), "open by pid")
    opened[0].close()
    cache.sweep()
    (kept,) = tmp_path.glob(".kept-*")
    assert (kept / "files" / "a.gguf").read_bytes() == FILES["a.gguf"]
    assert (path / "files" / "a.gguf").read_bytes() == b"fetched meanwhile"


def test_a_partial_that_another_process_fetches_is_refused(tmp_path: pathlib.Path) -> None:
    """The lock of a running fetch, in whatever process, keeps its partial."""
    path = make_partial(tmp_path, SOURCE, FILES)
    cache, entry = _listed(tmp_path)
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    _refused(collect_entry(cache, entry), "another process is fetching it")
    os.close(fd)
    assert collect_entry(cache, entry).removed


def test_a_cache_in_another_place_is_not_collected(tmp_path: pathlib.Path) -> None:
    """Nothing is removed from a directory that the cache's path no longer leads to."""
    make_entry(tmp_path / "cache", SOURCE, FILES)
    cache, entry = _listed(tmp_path / "cache")
    (tmp_path / "cache").rename(tmp_path / "away")
    _refused(collect_entry(cache, entry), "no longer the directory")


class _Swap:
    """Turns a directory of a cache's only entry into a link just before the chosen call of the system."""

    def __init__(self, root: pathlib.Path, below: str, outside: pathlib.Path, spare: pathlib.Path) -> None:
        self._root = root
        self._below = below
        self._outside = outside
        self._spare = spare
        self._left: int | None = None
        self.struck = False

    def arm(self, call: int) -> None:
        """Strike before call number `call`, counted from now."""
        self._left, self.struck = call, False

    def disarm(self) -> bool:
        """Strike no more. Whether there were fewer calls than that."""
        early, self._left = self._left is not None, None
        return early

    def __call__(self, event: str, _: object) -> None:
        """The audit hook: Python tells it each call that opens, lists, renames or removes, before it is made."""
        if self._left is None or not event.startswith(("open", "os.")):
            return
        self._left -= 1
        if self._left < 0:
            self._left = None
            # Under whatever name the entry has by now: it is renamed before it is removed.
            for entry in self._root.iterdir():
                with contextlib.suppress(OSError):
                    (entry / self._below).rename(self._spare)
                    (entry / self._below).symlink_to(self._outside)
                    self.struck = True


@pytest.mark.parametrize("below", ["", "files", "files/sub"])
def test_a_link_swapped_in_at_any_moment_gets_nothing_outside_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """A directory turns into a link before each call of its removal in turn: the victim loses no file."""
    # Looking through /proc is most of a removal's calls, and none of what is attacked here.
    monkeypatch.setattr("llmgw.agent.collect.holder", lambda *_: "")
    home = make_entry(tmp_path / "victim", SOURCE, FILES)
    template = make_entry(tmp_path / "template", SOURCE, FILES)
    root, spare = tmp_path / "cache", tmp_path / "spare"
    swap = _Swap(root, below, home / below, spare)
    before = {str(each): each.stat().st_ino for each in home.rglob("*")}
    outcomes: collections.Counter[bool] = collections.Counter()
    sys.addaudithook(swap)
    for call in itertools.count():
        for path in (root, spare):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, root / cache_name(SOURCE))
        cache, listed = _listed(root)
        swap.arm(call)
        outcome = collect_entry(cache, listed)
        over = swap.disarm()
        cache.close()
        assert {str(each): each.stat().st_ino for each in home.rglob("*")} == before
        if over:
            break
        outcomes[outcome.removed] += swap.struck
    assert outcomes[False] > 5, "it met removals and stopped them"
    assert outcomes[True] > 1 or not below, "removals met it, and went on beside it"
    assert outcomes.total() > 10


def test_a_stale_revision_removes_nothing(tmp_path: pathlib.Path) -> None:
    """A listing of an older catalog than the node has seen is refused entry by entry."""

    async def story() -> None:
        async with store(tmp_path) as held:
            entries = held.cache.list_entries()
            assert len(entries) == 2
            for outcome in await held.weights.collect(entries, 4, 5, ()):
                _refused(outcome, "catalog revision 4, this node has seen 5")
            outcomes = await held.weights.collect(entries, 5, 5, (entries[0].cache_name,))
            _refused(outcomes[0], "a shard of this node needs it")
            assert outcomes[1].removed

    make_entry(tmp_path, SOURCE, FILES)
    make_entry(tmp_path, parse("hf://org/other@main"), FILES)
    asyncio.run(story())


def test_what_is_being_fetched_is_not_collected(tmp_path: pathlib.Path) -> None:
    """A download under way keeps its partial, which the next listing shows no more."""
    body = noise(300_000)

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            caller = asyncio.create_task(held.weights.ensure(pinned(server.url("/m.gguf"), body)))
            await until(lambda: server.sent, "the download")
            (entry,) = held.cache.list_entries()
            _refused((await held.weights.collect((entry,), 1, 1, ()))[0], "it is being fetched")
            assert (await caller).read_bytes() == body

    with WeightsServer({"/m.gguf": body}) as server:
        server.behave("/m.gguf", Answer(pace=0.03))
        asyncio.run(story(server))


def test_a_shard_that_comes_during_a_collect_has_its_weights(tmp_path: pathlib.Path) -> None:
    """Whoever is told that the weights are here finds them: removed before, or kept."""
    body = noise(1000)

    async def story(server: WeightsServer) -> None:
        async with store(tmp_path) as held:
            sources = [pinned(server.url(f"/{i}.gguf"), body) for i in range(6)]
            for source in sources:
                await held.weights.ensure(source)
            entries = sorted(
                held.cache.list_entries(), key=lambda e: [cache_name(s) for s in sources].index(e.cache_name)
            )
            collecting = asyncio.create_task(held.weights.collect(entries, 1, 1, ()))
            await until(lambda: len(held.names()) < 6, "the first removal")
            paths = await asyncio.gather(*(held.weights.ensure(source) for source in sources))
            outcomes = await collecting
            assert all(path.read_bytes() == body for path in paths)
            assert outcomes[0].removed
            _refused(outcomes[-1], "a shard of this node needs it")

    with WeightsServer({f"/{i}.gguf": body for i in range(6)}) as server:
        asyncio.run(story(server))


def test_a_holder_is_named_whatever_it_calls_itself(tmp_path: pathlib.Path) -> None:
    """The name of a process is its own choice: bytes that are no text and control characters are replaced."""
    process = tmp_path / "77"
    (process / "fd").mkdir(parents=True)
    (process / "maps").write_text("7f00-7f01 r--p 00000000 08:01 42 /cache/w.gguf\n")
    (process / "comm").write_bytes(b"\xff\x1b[31mred\n")
    found = holder(frozenset(), "w.gguf", proc=tmp_path)
    assert found == "pid 77 (\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31mred)"
