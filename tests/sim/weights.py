"""A simulated cache: entries, fetches under way, whole bytes and wrong ones, and what a collect removes.

Bytes are real and few, so that the product's own digests, verdicts, notes and manifests decide. What is
right is `truth(source)`: no part of the product is asked. A `Flight` is the hands of one fetch, as
`agent.flight` and `agent.fetch` have them.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Container, Mapping
from typing import Protocol

from llmgw.agent import answer, collect, fetch, flight, manifest, partial
from llmgw.agent.answer import Have
from llmgw.agent.fetch import Remote
from llmgw.agent.manifest import FILES, MANIFEST, FileRecord, Manifest
from llmgw.agent.partial import NOTE, Digests, FileNote, Note
from llmgw.catalog.sources import Source, cache_name
from llmgw.fleet.node import CachedWeights
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from tests.sim.clockwork import Clockwork, Life

UNIT = 1 << 25
"""Bytes that one byte of these weights stands for where sizes are told."""

CAPACITY = 4000
"""Bytes of a cache's disk; a file has about fifty."""

ATTEMPTS = 2
UID = 1000
BACKOFF = Backoff(1.0, 2.0, 60.0)


@functools.lru_cache(maxsize=4096)
def bytes_of(canonical: str, name: str, version: int) -> bytes:
    """What a server has under this name; the next version is another file of another length."""
    seed = hashlib.sha256(f"{canonical}/{name}/{version}".encode()).digest()
    return seed + seed[: 8 + seed[0] % 16]


@functools.lru_cache(maxsize=4096)
def names_of(canonical: str) -> tuple[str, ...]:
    """The files of a source."""
    return ("config.json", "model.safetensors")[1 - cache_of(canonical)[0] % 2 :]


@functools.lru_cache(maxsize=4096)
def cache_of(canonical: str) -> bytes:
    """A digest to draw the nature of a source from."""
    return hashlib.sha256(canonical.encode()).digest()


def proven(canonical: str) -> bool:
    """Whether the hub tells digests of it."""
    return cache_of(canonical)[1] % 2 > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """As much of a file's status as anybody asks for."""

    st_size: int
    st_mtime: float
    st_nlink: int = 1
    st_uid: int = UID


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One file of a directory, as `agent.confine` finds it."""

    name: str
    status: Status
    regular: bool = True


@dataclasses.dataclass(slots=True)
class Directory:
    """An entry or a partial. `writer` is the flight that has its lock; `odd` are files that are not ours, and `claims`
    the bytes that files were given of the disk before they came.
    """

    note: Note | None = None
    manifest: Manifest | None = None
    files: dict[str, bytearray] = dataclasses.field(default_factory=dict)
    changed: float = 0.0
    writer: "Flight | None" = None
    odd: dict[str, Seen] = dataclasses.field(default_factory=dict)
    claims: dict[str, int] = dataclasses.field(default_factory=dict)

    def size(self) -> int:
        """Bytes on the disk."""
        return sum(max(len(data), self.claims.get(name, 0)) for name, data in self.files.items())

    def found(self) -> list[Seen]:
        """What a walk finds."""
        ours = [(f"{FILES}/{name}", len(data)) for name, data in self.files.items()]
        ours += [(MANIFEST, 1)] if self.manifest is not None else []
        ours += [(NOTE, 1)] if self.note is not None else []
        seen = [Seen(name, Status(size * UNIT, self.changed)) for name, size in ours]
        return [self.odd.get(each.name, each) for each in seen] + [
            each for name, each in self.odd.items() if name not in dict(ours)
        ]

    def describe(self) -> Manifest | Note | None:
        """What it says of itself."""
        return self.manifest or self.note

    def lacking(self) -> str:
        """Why it is not whole."""
        if self.manifest is None:
            return "it has no manifest"
        sizes = ((each, self.files.get(each.name)) for each in self.manifest.files)
        return next(
            (
                flaw
                for each, data in sizes
                if (flaw := manifest.flaw_of(each, None if data is None else len(data)))
            ),
            "",
        )


class Judge(Protocol):
    """Who watches what happens to a cache."""

    def committed(self, cache: "Cache", source: str) -> None:
        """A final name stands for this source."""
        ...

    def removed(self, cache: "Cache", entry: CachedWeights, found: Directory) -> None:
        """A collect is about to remove this."""
        ...

    def written(self, cache: "Cache", directory: Directory, flight: "Flight") -> None:
        """A flight is about to write into a partial."""
        ...

    def struck(self, kind: str, name: str) -> None:
        """A fault that lay in wait found its moment."""
        ...

    def room_changed(self, node: str) -> None:
        """Somebody else took a card or disk, or let it go."""
        ...


class Cache:
    """One node's cache, on its disk: it outlives agents and boots."""

    def __init__(self, clock: Clockwork, node: str, judge: Judge) -> None:
        self.node = node
        self.entries: dict[str, Directory] = {}
        self.partials: dict[str, Directory] = {}
        self.others = 0
        self.crowded = -math.inf
        self.mood = ""
        self.published = 0
        self._lasts = 0.0
        self._shown = False
        self._clock = clock
        self._judge = judge

    def moody(self, mood: str) -> bool:
        """Whether the hub is in this mood; it is counted when it first shows."""
        if self.mood != mood:
            return False
        if not self._shown:
            self._shown = True
            self._judge.struck(mood, self.node)
            self._clock.after(self._lasts, lambda: self.feels("") if self.mood == mood else None)
        return True

    def feels(self, mood: str, lasts: float = 0.0) -> None:
        """The hub's mood changes, until it has shown for so long; empty = it does what it should."""
        self.mood, self._lasts, self._shown = mood, lasts, False

    def crowd(self, others: int) -> None:
        """So many bytes of the disk are somebody else's from now on."""
        if others != self.others:
            self.others, self.crowded = others, self._clock.now
            self._judge.room_changed(self.node)

    def written(self, directory: Directory, flight: "Flight") -> None:
        """A flight is about to write."""
        self._judge.written(self, directory, flight)

    def discard(self, name: str) -> None:
        """A partial goes, with all that had come."""
        self.partials.pop(name, None)

    def lose_power(self) -> None:
        """What was not synced has its length and not its bytes."""
        for directory in self.partials.values():
            directory.writer = None
            for name, data in directory.files.items():
                noted = directory.note.files.get(name) if directory.note is not None else None
                if data and (noted is None or not noted.sha256):
                    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)

    def free(self) -> int:
        """Bytes that are left."""
        held = sum(each.size() for each in (*self.entries.values(), *self.partials.values()))
        return max(0, CAPACITY - held - self.others)

    def growing(self, within: float, known: Mapping[str, int]) -> bool:
        """Whether anything beside what has a `known` size came within so many seconds."""
        both = (*self.entries.items(), *self.partials.items())
        since = self._clock.now - within
        return any(each.changed > since and each.files and not known.get(name) for name, each in both)

    def right(self, canonical: str, directory: Directory) -> bool:
        """The truth: each file is, byte for byte, one that its server had."""
        versions = range(1 if proven(canonical) else self.published + 1)
        return set(directory.files) == set(names_of(canonical)) and all(
            any(bytes(data) == bytes_of(canonical, name, version) for version in versions)
            for name, data in directory.files.items()
        )

    def whole(self, name: str) -> bool:
        """Whether the weights are here, by their manifest and sizes."""
        found = self.entries.get(name)
        return found is not None and not found.lacking()

    def listed(self) -> tuple[CachedWeights, ...]:
        """As `agent.cache` lists it."""
        both = ((self.entries, True), (self.partials, False))
        return tuple(
            CachedWeights(
                name,
                described.source,
                size,
                modified,
                whole and not each.lacking(),
                0 if whole else each.size() * UNIT,
            )
            for where, whole in both
            for name, each in sorted(where.items())
            if (described := each.describe()) is not None
            for size, modified in (collect.measure(each.found()),)
        )

    def open(self, source: Source, flight: "Flight") -> Directory | None:
        """The locked partial of a source, as `agent.partial` opens it; None while somebody else has it."""
        name = cache_name(source)
        broken = self.entries.get(name)
        if broken is not None and broken.lacking() and name not in self.partials:
            self.partials[name] = self.entries.pop(name)
        directory = self.partials.setdefault(name, Directory())
        if directory.writer is not None:
            return None
        directory.writer = flight
        directory.note = _note(directory, source.canonical)
        return directory

    def commit(self, source: Source, directory: Directory, files: Mapping[str, FileRecord]) -> None:
        """The partial becomes the entry."""
        name = cache_name(source)
        directory.files = {each: directory.files[each] for each in files}
        directory.claims = {}
        directory.manifest = Manifest(source=source.canonical, files=tuple(files.values()), fetched_at="")
        directory.note, directory.writer = None, None
        directory.changed = self._clock.now
        self.entries[name] = self.partials.pop(name)
        self._judge.committed(self, source.canonical)

    def fill(self, source: Source) -> None:
        """An entry that is here from before the world began."""
        data = {name: bytes_of(source.canonical, name, 0) for name in names_of(source.canonical)}
        files = tuple(
            FileRecord(name=name, size=len(each), sha256=hashlib.sha256(each).hexdigest())
            for name, each in data.items()
        )
        self.entries[cache_name(source)] = Directory(
            manifest=Manifest(source=source.canonical, files=files, fetched_at=""),
            files={name: bytearray(each) for name, each in data.items()},
        )

    def died(self) -> None:
        """The process that held every lock is gone."""
        for directory in self.partials.values():
            directory.writer = None

    def collect(
        self,
        entry: CachedWeights,
        revision: int,
        newest: int,
        fetching: Container[str],
        needed: Container[str],
        opened: Container[str],
    ) -> bool:
        """As `agent.weights` and `agent.collect` remove one entry: every check again, then it is gone."""
        if collect.out_of_turn(entry.cache_name, revision, newest, fetching, needed):
            return False
        with contextlib.suppress(collect.Refusal):
            for where in (self.entries, self.partials):
                found = where.get(entry.cache_name)
                if found is None or collect.measure(found.found()) != (entry.size, entry.modified):
                    continue
                collect.check(entry.cache_name, found.describe(), found.found(), UID)
                if found.writer is None and entry.cache_name not in opened:
                    self._judge.removed(self, entry, found)
                    del where[entry.cache_name]
                    return True
        return False


def _note(directory: Directory, source: str) -> Note:
    note = directory.note or partial.note_of(directory.manifest)
    directory.manifest = None
    return note if note is not None and note.source == source else Note(source=source)


@dataclasses.dataclass(frozen=True, slots=True)
class Hands:
    """What a flight reports to, and what it shares with the others of its agent."""

    clock: Clockwork
    life: Life
    chance: Chance
    cache: Cache
    boot: str
    landed: Callable[["Flight", str], None]
    came: Callable[["Flight"], None]


class Flight:
    """One fetch of one source: files in order, each by verdicts; again after what may pass."""

    def __init__(self, source: Source, hands: Hands, slow: float) -> None:
        self.source = source
        self.name = cache_name(source)
        self.abandoned = False
        self.received = 0
        self._hands = hands
        self._slow = slow
        self._failures = 0
        self._best = 0
        self._directory: Directory | None = None
        self._over = False
        self._proven: set[str] = set()

    def open(self) -> None:
        """Lock the partial, and go on from what is in it."""
        if self.abandoned:
            self._land("it is not wanted any more")
            return
        self._directory = self._hands.cache.open(self.source, self)
        if self._hands.cache.whole(self.name):
            self._land("")
        elif self._directory is None:
            self._after(0.5, self.open)
        else:
            self._files()

    def _remotes(self) -> list[Remote]:
        canonical = self.source.canonical
        right = {name: bytes_of(canonical, name, 0) for name in names_of(canonical)}
        if not proven(canonical):
            return [Remote(name, f"https://hub/{name}") for name in right]
        return [
            Remote(name, f"https://hub/{name}", len(data), hashlib.sha256(data).hexdigest())
            for name, data in right.items()
        ]

    def _files(self) -> None:
        """The first file that is not finished; or the whole entry."""
        directory = self._locked()
        note, done = _of(directory), {}
        for remote in self._remotes():
            record = partial.finished(
                remote.name, note.files.get(remote.name), len(directory.files.get(remote.name, b""))
            )
            if record is not None and remote.name not in self._proven and not flight.is_still(record, remote):
                self._void(remote)
                record = None
            if record is None:
                self._ask(remote)
                return
            done[remote.name] = record
        self._hands.cache.commit(self.source, directory, done)
        self._land("")

    def _ask(self, remote: Remote) -> None:
        directory = self._locked()
        note = _of(directory)
        note.files.setdefault(remote.name, FileNote())
        data = directory.files.get(remote.name)
        size = None if data is None else len(data)
        have = partial.built_on(
            note.files[remote.name], size, checked=remote.wanted.checked, boot=self._hands.boot
        )
        if fetch.all_here(have, remote):
            self._prove(remote, resumed=True)
            return
        self._after(self._hands.chance.uniform(0.1, 2.0), functools.partial(self._answered, remote, have))

    def _answered(self, remote: Remote, have: Have) -> None:
        directory = self._locked()
        headers = answer.request_headers(have)
        status, said, body = served(self._hands.cache, self.source.canonical, remote.name, headers)
        match answer.judge(have, remote.wanted, status, said):
            case answer.Append(total):
                self._receive(remote, body, have.size, total)
            case answer.Anew(total, etag):
                _of(directory).files[remote.name] = FileNote(etag=etag, total=total, boot=self._hands.boot)
                directory.files[remote.name] = bytearray()
                directory.claims.pop(remote.name, None)
                self._receive(remote, body, 0, total)
            case answer.Complete():
                self._prove(remote, resumed=have.size > 0)
            case answer.Later(void=void):
                if void:
                    self._void(remote)
                self._trouble(f"the hub said {status}", passing=True)
            case _:
                self._trouble(f"the hub said {status}", passing=False)

    def _receive(self, remote: Remote, body: bytes, start: int, total: int | None) -> None:
        directory = self._locked()
        if total is not None:
            held = max(start, directory.claims.get(remote.name, 0))
            if total - held > self._hands.cache.free():
                self._trouble("the rest does not fit", passing=False)
                return
            directory.claims[remote.name] = total
        half = len(body) // 2
        fails = self._hands.cache.moody("cut-fetch")
        pause = self._hands.chance.uniform(0.1, 15.0) * self._slow
        self._after(pause, functools.partial(self._piece, remote, body[:half], start))
        last = body[half : half + half // 2] if fails else body[half:]
        end = functools.partial(self._end, remote, start > 0, total, last, start + half)
        self._after(2 * pause, end)

    def _piece(self, remote: Remote, piece: bytes, at: int) -> None:
        directory = self._locked()
        claimed = max(0, directory.claims.get(remote.name, 0) - at)
        if len(piece) - claimed > self._hands.cache.free():
            self._hands.cache.discard(self.name)
            self._land("cannot fetch: the disk is full")
            return
        self._hands.cache.written(directory, self)
        assert len(directory.files[remote.name]) == at
        directory.files[remote.name] += piece
        directory.changed = self._hands.clock.now
        self.received += len(piece)
        self._hands.came(self)

    def _end(self, remote: Remote, resumed: bool, total: int | None, piece: bytes, at: int) -> None:
        self._piece(remote, piece, at)
        if self._over:
            return
        size = len(self._locked().files[remote.name])
        if total is not None and size != total:
            self._trouble("it ended too early", passing=True)
        else:
            self._prove(remote, resumed=resumed)

    def _prove(self, remote: Remote, *, resumed: bool) -> None:
        directory = self._locked()
        digests = Digests()
        digests.update(bytes(directory.files[remote.name]))
        if fetch.fault_of(remote, digests):
            self._void(remote)
            self._trouble("wrong bytes", passing=resumed)
            return
        noted = _of(directory).files[remote.name]
        _of(directory).files[remote.name] = noted.model_copy(
            update={"total": digests.size, "sha256": digests.sha256()}
        )
        self._proven.add(remote.name)
        self._files()

    def _void(self, remote: Remote) -> None:
        directory = self._locked()
        directory.files.pop(remote.name, None)
        directory.claims.pop(remote.name, None)
        _of(directory).files[remote.name] = FileNote()

    def _trouble(self, said: str, *, passing: bool) -> None:
        self._proven.clear()
        gained = self.received > self._best
        self._failures, self._best = 1 if gained else self._failures + 1, max(self._best, self.received)
        if not passing or self._failures >= ATTEMPTS:
            self._land(f"cannot fetch: {said}")
        else:
            self._after(BACKOFF.delay(self._failures, self._hands.chance), self._files)

    def _land(self, said: str) -> None:
        self._over = True
        if self._directory is not None and self._directory.writer is self:
            self._directory.writer = None
        self._hands.landed(self, said)

    def _after(self, delay: float, step: Callable[[], None]) -> None:
        def go_on() -> None:
            if self._over:
                return
            if self.abandoned:
                self._land("it is not wanted any more")
            else:
                step()

        self._hands.clock.after(delay, go_on, self._hands.life)

    def _locked(self) -> Directory:
        assert self._directory is not None
        return self._directory


def _of(directory: Directory) -> Note:
    assert directory.note is not None
    return directory.note


def served(
    cache: Cache, canonical: str, name: str, headers: Mapping[str, str]
) -> tuple[int, Mapping[str, str], bytes]:
    """What the hub answers in its mood of now: status, headers, body."""
    if cache.moody("bad-fetch"):
        return 503, {}, b""
    version = 0 if proven(canonical) else cache.published
    data = bytes_of(canonical, name, version)
    etag = f'"{version}"'
    if proven(canonical) and cache.moody("wrong-bytes"):
        data = bytes([data[0] ^ 1]) + data[1:]
    start = int(headers["Range"].removeprefix("bytes=").removesuffix("-")) if "Range" in headers else 0
    if not start or (headers.get("If-Range") != etag and not cache.moody("careless-hub")):
        return 200, {"content-length": str(len(data)), "etag": etag}, data
    if start >= len(data):
        return 416, {"content-range": f"bytes */{len(data)}"}, b""
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    said = {"content-range": span, "content-length": str(len(data) - start), "etag": etag}
    return 206, said, data[start:]
