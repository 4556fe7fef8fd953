"""Removing one cache entry that the control plane listed, after checking everything again.

Called by `agent.weights` for each entry of a Collect, in a worker thread. A refusal says why and is
this working, not an error. What is removed goes out of sight by one rename first; only then is it
looked at for the last time and unlinked, below descriptors that were opened without following a link.
"""

import contextlib
import dataclasses
import fcntl
import os
import secrets
from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from llmgw.agent import confine
from llmgw.agent.cache import NAME, Cache, describe
from llmgw.agent.confine import Found
from llmgw.agent.holders import holder
from llmgw.agent.manifest import FILES, MANIFEST, Manifest, name_of
from llmgw.agent.partial import NOTE, SUFFIX, TRASH, Note
from llmgw.fleet.node import CachedWeights
from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes

KEPT = ".kept-"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one entry. `freed` in bytes, as counted while unlinking."""

    cache_name: str
    removed: bool
    said: str
    freed: int = 0


class Refusal(Exception):
    """Why an entry stays."""


class Status(Protocol):
    """What is asked of a file's status."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_mtime(self) -> float: ...

    @property
    def st_nlink(self) -> int: ...

    @property
    def st_uid(self) -> int: ...


class Seen(Protocol):
    """A file of an entry, as `agent.confine` finds it."""

    @property
    def name(self) -> str: ...

    @property
    def regular(self) -> bool: ...

    @property
    def status(self) -> Status: ...


def out_of_turn(
    name: str, revision: int, newest: int, fetching: Container[str], needed: Container[str]
) -> str:
    """Why an entry stays whatever it looks like: its listing is old, or somebody here wants it; or empty.

    `revision` is the catalog's that it was listed under, `newest` the newest that this node has seen.
    """
    if revision < newest:
        return f"it was listed under catalog revision {revision}, this node has seen {newest}"
    if name in fetching:
        return "it is being fetched"
    return "a shard of this node needs it" if name in needed else ""


def collect_entry(cache: Cache, entry: CachedWeights) -> Outcome:
    """Remove `entry` if it is ours, unchanged since it was listed, and nobody has it open."""
    try:
        freed = _collected(cache, entry)
    except Refusal as refusal:
        return Outcome(safe(entry.cache_name)[:80], removed=False, said=str(refusal))
    except OSError as error:
        return Outcome(
            safe(entry.cache_name)[:80], removed=False, said=f"it cannot be read: {error.strerror}"
        )
    return Outcome(entry.cache_name, removed=True, said=f"removed, {show_bytes(freed)}", freed=freed)


def _collected(cache: Cache, entry: CachedWeights) -> int:
    if not NAME.match(entry.cache_name):
        raise Refusal("the name is none that llmgw gives")
    if not cache.in_place():
        raise Refusal(f"{cache.root} is no longer the directory that this agent opened")
    with contextlib.ExitStack() as opened:
        name, fd = _open_listed(cache, entry, opened)
        found = _checked(fd, entry)
        if name.endswith(SUFFIX):
            _lock(fd)
        files = frozenset((each.status.st_dev, each.status.st_ino) for each in found)
        _unheld(files, entry.cache_name)
        return _removed(cache, name, fd, files)


def _open_listed(cache: Cache, entry: CachedWeights, opened: contextlib.ExitStack) -> tuple[str, int]:
    """The directory, whole or partial, that looks as it was listed."""
    seen = []
    for name in (entry.cache_name, entry.cache_name + SUFFIX):
        try:
            fd = opened.enter_context(confine.opened_below(cache.fd, name))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Refusal(f"{name[:12]}… is no directory of ours ({error.strerror})") from error
        seen.append(name)
        if measure(confine.walk(fd)) == (entry.size, entry.modified):
            return name, fd
    raise Refusal("it changed since it was listed" if seen else "it is not here any more")


def measure(found: Sequence[Seen]) -> tuple[int, float]:
    """Bytes of an entry and its newest change: by these it is recognised again."""
    size = sum(each.status.st_size for each in found)
    return size, max((each.status.st_mtime for each in found), default=0.0)


def _checked(fd: int, entry: CachedWeights) -> list[Found]:
    """The files of the entry, each proven ours. Raises Refusal."""
    found = confine.walk(fd)
    check(entry.cache_name, describe(fd), found, os.geteuid())
    return found


def check(name: str, described: Manifest | Note | None, found: Iterable[Seen], uid: int) -> None:
    """Raise Refusal unless all of an entry is of our making: described as `name`, its files `found` ours alone."""
    if described is None or name_of(described.source) != name:
        raise Refusal("it does not say of itself that llmgw fetched it")
    ours = _names(described)
    for each in found:
        shown = safe(each.name)[:80]
        if each.name not in ours and not _temporary(each.name):
            raise Refusal(f"it holds {shown}, which llmgw did not fetch")
        if not each.regular:
            raise Refusal(f"its {shown} is no regular file")
        if each.status.st_nlink != 1:
            raise Refusal(f"its {shown} has {each.status.st_nlink} hard links: somebody else wants it")
        if each.status.st_uid != uid:
            raise Refusal(f"its {shown} belongs to uid {each.status.st_uid}")


def _names(described: Manifest | Note) -> frozenset[str]:
    files = (
        [record.name for record in described.files] if isinstance(described, Manifest) else described.files
    )
    return frozenset({MANIFEST, NOTE, *(f"{FILES}/{name}" for name in files)})


def _temporary(name: str) -> bool:
    """What `kit.files.write_atomic` leaves when it is killed."""
    return name.endswith(".tmp") and name.startswith((f".{MANIFEST}.", f".{NOTE}."))


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refusal("another process is fetching it") from error


def _unheld(files: frozenset[tuple[int, int]], name: str) -> None:
    held = holder(files, name)
    if held:
        raise Refusal(f"it is open by {held}")


def _removed(cache: Cache, name: str, fd: int, files: frozenset[tuple[int, int]]) -> int:
    """Rename, look once more, unlink. Returns the bytes freed."""
    trash = f"{TRASH}{name}-{secrets.token_hex(4)}"
    confine.rename_new(cache.fd, name, trash)
    try:
        with confine.opened_below(cache.fd, trash) as moved:
            if not os.path.samestat(os.fstat(moved), os.fstat(fd)):
                raise Refusal("another directory took its place while it was checked")
        # Nobody can open it by its name now: who has it open has had it before.
        _unheld(files, name.removesuffix(SUFFIX))
    except (Refusal, OSError):
        _put_back(cache, trash, name)
        raise
    freed = confine.remove_tree(cache.fd, trash)
    os.fsync(cache.fd)
    return freed


def _put_back(cache: Cache, trash: str, name: str) -> None:
    try:
        confine.rename_new(cache.fd, trash, name)
    except FileExistsError:
        # Never left as trash: that would be swept at the next start.
        confine.rename_new(cache.fd, trash, trash.replace(TRASH, KEPT, 1))
