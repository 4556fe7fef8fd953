"""The one fetch of one source: lock, listing, room, files, manifest; again while it may help.

`agent.weights` runs `fly` in a thread with a loop of its own (`agent.aside`): hashing and disk
writes hold up nobody else, and cancelling it is prompt. What was fetched stays for the next flight.
"""

import asyncio
import dataclasses
import logging
import pathlib

from llmgw.agent import manifest, space
from llmgw.agent.cache import shown
from llmgw.agent.fetch import Fetching, Limits, Remote, Trouble, fetch_file, make_client
from llmgw.agent.hub import Contents, contents
from llmgw.agent.manifest import FileRecord, Manifest
from llmgw.agent.meter import Meter
from llmgw.agent.partial import Partial
from llmgw.catalog.hub import Hub
from llmgw.catalog.sources import Source, cache_name
from llmgw.errors import Failed
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.kit.units import show_bytes, show_seconds

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What a flight needs. `boot` names the running kernel."""

    source: Source
    root: pathlib.Path
    hub: Hub
    limits: Limits
    meter: Meter
    clock: Clock
    chance: Chance
    boot: str


async def fly(job: Job) -> None:
    """Make the entry whole. Raises Failed, which says what cannot be fetched and why."""
    try:
        partial = await _opened(job)
        if partial is None:
            return
        try:
            await _fetched(job, partial)
        finally:
            partial.close()
    except Trouble as trouble:
        raise Failed(f"cannot fetch {shown(job.source)}: {trouble.why}{_so_far(job.meter)}") from trouble
    except OSError as error:
        raise Failed(f"cannot fetch {shown(job.source)}: {_of_disk(error, job)}") from error


async def _opened(job: Job) -> Partial | None:
    """The locked partial; None where another process made the entry whole meanwhile."""
    name = cache_name(job.source)
    waited = False
    while True:
        partial = Partial.open(job.root, job.source.canonical, job.boot)
        if _whole(job.root / name):
            if partial is not None:
                partial.discard()
                partial.close()
            return None
        if partial is not None:
            return partial
        if not waited:
            log.info("waiting for another process that fetches %s", shown(job.source))
            waited = True
        await asyncio.sleep(job.limits.lock_poll)


def _whole(directory: pathlib.Path) -> bool:
    found = manifest.read(directory)
    return found is not None and not manifest.lacking(directory, found)


async def _fetched(job: Job, partial: Partial) -> None:
    left = manifest.read(partial.directory)
    if left is not None and left.source == job.source.canonical:
        if not manifest.lacking(partial.directory, left):
            partial.settle(left)
            return
        (partial.directory / manifest.MANIFEST).unlink()
    async with make_client(job.limits) as client:
        fetching = Fetching(client, partial, job.limits, job.meter, job.clock)
        try:
            listed = await _persistently(job, fetching)
        except OSError as error:
            if error.errno in space.FULL:
                partial.discard()
            raise
    files = [partial.done(remote.name) for remote in listed.files]
    whole = Manifest(
        source=job.source.canonical,
        revision=listed.revision,
        files=tuple(record for record in files if record is not None),
        fetched_at=job.clock.wall().isoformat(timespec="seconds"),
    )
    partial.commit(whole)
    log.info("fetched %s: %s", shown(job.source), show_bytes(sum(record.size for record in whole.files)))


async def _persistently(job: Job, fetching: Fetching) -> Contents:
    """Attempts until the files are whole, or `attempts` in a row gained nothing."""
    backoff = Backoff(job.limits.retry_base, 2.0, job.limits.retry_cap)
    failures, best = 0, 0
    listed: Contents | None = None
    while True:
        try:
            listed = listed or await contents(fetching.client, job.hub, job.source)
            await _files(job, fetching, listed)
            return listed
        except Trouble as trouble:
            gained = job.meter.received > best
            failures, best = 1 if gained else failures + 1, max(best, job.meter.received)
            if not trouble.passing or failures >= job.limits.attempts:
                raise
            delay = max(trouble.after, backoff.delay(failures, job.chance))
            log.warning("%s; again in %s", trouble.why, show_seconds(delay))
        await asyncio.sleep(delay)


async def _files(job: Job, fetching: Fetching, listed: Contents) -> None:
    partial = fetching.partial
    partial.expect(tuple(remote.name for remote in listed.files))
    here = sum(_here(partial, remote) for remote in listed.files)
    job.meter.start(here, {remote.name: remote.size for remote in listed.files})
    _fits(job, partial, listed)
    for remote in listed.files:
        if not _settled(partial, remote):
            await fetch_file(fetching, remote)


def _settled(partial: Partial, remote: Remote) -> bool:
    """Whether the file is done already, and is still the one that is listed."""
    record = partial.done(remote.name)
    if record is None:
        return False
    fits = is_still(record, remote)
    if not fits:
        partial.void(remote.name)
    return fits


def is_still(record: FileRecord, remote: Remote) -> bool:
    """Whether what was finished is the file that is listed now."""
    return remote.size in (None, record.size) and remote.sha256 in ("", record.sha256)


def _here(partial: Partial, remote: Remote) -> int:
    return partial.have(remote.name, checked=remote.wanted.checked).size


def _fits(job: Job, partial: Partial, listed: Contents) -> None:
    """Raise Trouble where all that is still to fetch does not fit, before the first byte of it."""
    if (listed.size or 0) > job.limits.largest:
        largest = show_bytes(job.limits.largest)
        raise Trouble(f"it has {show_bytes(listed.size or 0)}, at most {largest} are taken")
    need = sum(
        max(0, remote.size - space.claimed(partial.path(remote.name)))
        for remote in listed.files
        if remote.size
    )
    lacking = space.lacking(job.root, need, job.limits.reserve)
    if lacking:
        raise Trouble(lacking)


def _so_far(meter: Meter) -> str:
    if not meter.received:
        return ""
    of = f" of {show_bytes(meter.total)}" if meter.total is not None else ""
    return f" ({show_bytes(meter.received)}{of} came)"


def _of_disk(error: OSError, job: Job) -> str:
    if error.errno in space.FULL:
        total = f" of {show_bytes(job.meter.total)}" if job.meter.total is not None else ""
        came = show_bytes(job.meter.received)
        return f"the disk of {job.root} is full after {came}{total}; what had come was removed"
    return f"{error.filename or job.root}: {error.strerror or error}"
