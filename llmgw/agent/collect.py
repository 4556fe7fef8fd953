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
from collections.abc import Sequence

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
        if _measure(confine.walk(fd)) == (entry.size, entry.modified):
            return name, fd
    raise Refusal("it changed since it was listed" if seen else "it is not here any more")


def _measure(found: Sequence[Found]) -> tuple[int, float]:
    size = sum(each.status.st_size for each in found)
    return size, max((each.status.st_mtime for each in found), default=0.0)


def _checked(fd: int, entry: CachedWeights) -> list[Found]:
    """The files of the entry, each proven ours. Raises Refusal."""
    described = describe(fd)
    if described is None or name_of(described.source) != entry.cache_name:
        raise Refusal("it does not say of itself that llmgw fetched it")
    ours = _names(described)
    found = confine.walk(fd)
    for each in found:
        name = safe(each.name)[:80]
        if each.name not in ours and not _temporary(each.name):
            raise Refusal(f"it holds {name}, which llmgw did not fetch")
        if not each.regular:
            raise Refusal(f"its {name} is no regular file")
        if each.status.st_nlink != 1:
            raise Refusal(f"its {name} has {each.status.st_nlink} hard links: somebody else wants it")
        if each.status.st_uid != os.geteuid():
            raise Refusal(f"its {name} belongs to uid {each.status.st_uid}")
    return found


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
