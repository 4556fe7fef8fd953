"""One file over HTTP, from wherever it stands to whole and proven, or to a reason.

`agent.flight` calls `fetch_file` for each file of a source, and again after a `Trouble` that may
pass. What an answer means is `agent.answer`'s to say; the bytes go into `agent.partial`.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping

import httpx

from llmgw.agent import answer, space
from llmgw.agent.answer import Have, Verdict, Wanted, judge, request_headers
from llmgw.agent.meter import Meter
from llmgw.agent.partial import WRONG, Digests, Partial
from llmgw.kit.clock import Clock
from llmgw.kit.files import open_regular
from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes, show_seconds

_HOPS = 8
_PIECE = 8 * 2**20
_LOOK = 64 * 2**20
"""Bytes between two looks at the disk where no length was said."""
_PAGE = 4096
"""Bytes of a refusal in which its words are looked for."""
_TAGS = re.compile(r"(?is)<!--.*?(?:-->|\Z)|<(style|script)\b.*?(?:</\1>|\Z)|</?[a-z!][^<>]*>?")
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes that bound a fetch. `attempts` = failures in a row that gained nothing."""

    stall: float = 30.0
    connect: float = 10.0
    attempts: int = 5
    retry_base: float = 1.0
    retry_cap: float = 60.0
    reserve: int = 2 * 10**9
    largest: int = 8 * 10**12
    lock_poll: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Remote:
    """One file to fetch. `credentials` are headers that only the origin of `url` may see.

    `size`, `sha256` and `git_sha1` are what is known of it beforehand, if anything.
    """

    name: str
    url: str
    size: int | None = None
    sha256: str = ""
    git_sha1: str = ""
    credentials: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.size, checked=bool(self.sha256 or self.git_sha1))


class Trouble(Exception):
    """Why a fetch did not go on. `passing` = it may work later, in `after` seconds if it was said."""

    def __init__(self, why: str, *, passing: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.passing = passing
        self.after = after


@dataclasses.dataclass(frozen=True, slots=True)
class Fetching:
    """What the fetches of one source share."""

    client: httpx.AsyncClient
    partial: Partial
    limits: Limits
    meter: Meter
    clock: Clock
    digests: dict[str, Digests] = dataclasses.field(default_factory=dict)


def make_client(limits: Limits) -> httpx.AsyncClient:
    """A client that takes the environment's proxies for other machines, and none for this one.

    Raises Trouble where the environment's proxy settings make no sense.
    """
    for name in ("httpx", "httpcore"):
        # They log every address whole: a redirect's is a signature that opens the storage.
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(limits.stall, connect=limits.connect),
            mounts=dict.fromkeys(_LOOPBACK),
            headers={"User-Agent": "llmgw"},
        )
    except ValueError as error:
        raise Trouble(
            f"the proxy settings of the environment cannot be used: {safe(str(error))[:200]}"
        ) from error


async def fetch_file(fetching: Fetching, remote: Remote) -> None:
    """Bring `remote` into the partial, proven and synced. Raises Trouble; OSError of the disk."""
    partial, version = fetching.partial, ""
    have = partial.have(remote.name, checked=remote.wanted.checked)
    if all_here(have, remote):
        return await _prove(fetching, remote, resumed=True)
    if answer.resumable(have):
        await _digests(fetching, remote, have.size)
    async with asking(
        fetching.client,
        remote.url,
        request_headers(have),
        remote.credentials,
        lambda status, headers: judge(have, remote.wanted, status, headers),
    ) as (response, verdict):
        match verdict:
            case answer.Append(total):
                await _receive(fetching, remote, response, have, total)
            case answer.Anew(total, etag):
                version = _version(remote, response, total)
                if said := partial.proven_wrong(remote.name, version):
                    said = f"{remote.name} {said}; it came {WRONG} times and is still the same there"
                    raise Trouble(f"{_host(remote.url)}: {said}")
                fetching.meter.void(have.size)
                partial.begin(remote.name, total, etag)
                await _receive(fetching, remote, response, Have(), total)
            case answer.Complete():
                pass
            case answer.Later(said, after, void):
                if void:
                    partial.void(remote.name)
                raise Trouble(f"{_host(remote.url)}: {said}", passing=True, after=after)
            case answer.Never(said):
                raise Trouble(f"{_host(remote.url)}: {said}{await _excerpt(response)}")
            case answer.Elsewhere():
                raise Trouble(f"{_host(remote.url)} redirects more than {_HOPS} times")
    resumed = have.size > 0 and not isinstance(verdict, answer.Anew)
    return await _prove(fetching, remote, resumed=resumed, version=version)


@contextlib.asynccontextmanager
async def asking(
    client: httpx.AsyncClient,
    url: str,
    headers: Mapping[str, str],
    credentials: Mapping[str, str],
    decide: Callable[[int, Mapping[str, str]], Verdict],
) -> AsyncIterator[tuple[httpx.Response, Verdict]]:
    """GET `url`, following redirects; credentials stay behind when scheme, host or port changes.

    What goes wrong on the wire, also while the body is read inside, comes out as Trouble.
    """
    sent = dict(credentials)
    try:
        for hop in range(_HOPS):
            client.cookies.clear()
            request = client.build_request("GET", url, headers={**headers, **sent})
            response = await client.send(request, stream=True)
            try:
                verdict = decide(response.status_code, _lowered(response.headers))
                if not isinstance(verdict, answer.Elsewhere) or hop == _HOPS - 1:
                    yield response, verdict
                    return
            finally:
                await response.aclose()
            target = _followable(url, verdict.location)
            sent = sent if _origin(target) == _origin(url) else {}
            url = target
    except httpx.ReadTimeout as error:
        limit = client.timeout.read or 0.0
        raise Trouble(f"{_host(url)}: no byte for {show_seconds(limit)}", passing=True) from error
    except httpx.TransportError as error:
        said = safe(str(error))[:200] or type(error).__name__
        passing = not isinstance(error, httpx.UnsupportedProtocol)
        raise Trouble(f"{_host(url)}: {said}", passing=passing) from error
    except httpx.InvalidURL as error:
        raise Trouble(f"{_host(url)}: {safe(str(error))[:200]}") from error


async def read_bounded(response: httpx.Response, most: int) -> bytes:
    """The body, if it is not longer than `most` bytes. Raises Trouble."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > most:
            raise Trouble(f"{_host(str(response.url))}: its answer is longer than {show_bytes(most)}")
    return bytes(body)


async def _receive(
    fetching: Fetching, remote: Remote, response: httpx.Response, have: Have, total: int | None
) -> None:
    fetching.meter.said(remote.name, total)
    digests = await _digests(fetching, remote, have.size)
    fd = fetching.partial.open_file(remote.name)
    try:
        _make_room(fetching, remote, fd, have.size, total)
        async for piece in response.aiter_raw():
            _write(fd, piece)
            digests.update(piece)
            fetching.meter.add(len(piece), fetching.clock.now())
            if total is None:
                _watch(fetching, remote, digests.size, len(piece))
    finally:
        os.close(fd)
    if total is not None and digests.size != total:
        said = f"it ended {remote.name} after {digests.size} of {total} bytes"
        raise Trouble(f"{_host(remote.url)}: {said}", passing=True)


async def _digests(fetching: Fetching, remote: Remote, size: int) -> Digests:
    """The digests at `size`: kept from the attempt before, or read back from the disk."""
    kept = fetching.digests.get(remote.name)
    if kept is None or kept.size != size:
        kept = Digests(remote.size if remote.git_sha1 else None)
        fetching.digests[remote.name] = kept
        if size:
            await _read_back(fetching.partial.path(remote.name), size, kept)
    return kept


async def _read_back(path: pathlib.Path, size: int, digests: Digests) -> None:
    """Digest the first `size` bytes of a file, in pieces between which it can be cancelled."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while digests.size < size and (piece := file.read(min(_PIECE, size - digests.size))):
            digests.update(piece)
            await asyncio.sleep(0)


def _make_room(fetching: Fetching, remote: Remote, fd: int, have: int, total: int | None) -> None:
    """Check and claim the disk for the rest of the file. Raises Trouble; OSError where it is full."""
    if total is not None and total > fetching.limits.largest:
        raise Trouble(_too_large(remote, total, fetching.limits))
    held = space.claimed(fetching.partial.path(remote.name))
    need = max(0, (total or have) - max(have, held))
    lacking = space.lacking(fetching.partial.directory, need, fetching.limits.reserve)
    if lacking:
        raise Trouble(lacking)
    if total:
        space.claim(fd, total)


def _watch(fetching: Fetching, remote: Remote, size: int, grown: int) -> None:
    """Raise Trouble where a file of no said length grows beyond bounds; what came of it is dropped."""
    said = _too_large(remote, size, fetching.limits) if size > fetching.limits.largest else ""
    if not said and size // _LOOK != (size - grown) // _LOOK:
        said = space.lacking(fetching.partial.directory, 0, fetching.limits.reserve)
    if said:
        fetching.partial.void(remote.name)
        raise Trouble(said)


def _too_large(remote: Remote, size: int, limits: Limits) -> str:
    return f"{remote.name} has {show_bytes(size)}, at most {show_bytes(limits.largest)} are taken"


def _version(remote: Remote, response: httpx.Response, total: int | None) -> str:
    """What tells whether a server has the same file as another time; empty where it says nothing of the kind.

    Enough to fetch nothing that was wrong before, not to put two parts together.
    """
    said = response.headers.get("etag") or response.headers.get("last-modified")
    wanted = remote.sha256 or remote.git_sha1
    return f"{wanted} {total} {safe(said)[:200]}" if said and total is not None else ""


async def _prove(fetching: Fetching, remote: Remote, *, resumed: bool, version: str = "") -> None:
    """Compare digests and finish the file, or remove it and say both digests.

    `version` is the server's, of a file that came in one piece.
    """
    size = fetching.partial.path(remote.name).stat().st_size
    digests = await _digests(fetching, remote, size)
    wrong = fault_of(remote, digests)
    if wrong:
        fetching.partial.void(remote.name)
        if version:
            fetching.partial.came_wrong(remote.name, version, wrong)
        # What was here before may have been the wrong part: the whole file deserves one more try.
        raise Trouble(f"{_host(remote.url)}: {remote.name} {wrong}", passing=resumed)
    fetching.partial.finish(remote.name, digests.size, digests.sha256())


def all_here(have: Have, remote: Remote) -> bool:
    """Whether nothing is left to ask for: a digest will decide."""
    return remote.wanted.checked and have.size > 0 and have.size == (remote.size or have.total)


def fault_of(remote: Remote, digests: Digests) -> str:
    """Why bytes with these digests are not the file; empty = nothing says that they are not."""
    if remote.size is not None and digests.size != remote.size:
        return f"has {digests.size} bytes, the listing says {remote.size}"
    if remote.sha256 and digests.sha256() != remote.sha256:
        return f"has sha256 {digests.sha256()}, {remote.sha256} is wanted"
    if remote.git_sha1 and digests.git_sha1() != remote.git_sha1:
        return f"has git blob id {digests.git_sha1()}, {remote.git_sha1} is wanted"
    return ""


def _write(fd: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]


async def _excerpt(response: httpx.Response) -> str:
    """The start of what the server says about its refusal."""
    with contextlib.suppress(httpx.HTTPError):
        async for piece in response.aiter_raw():
            said = _first_words(piece[:_PAGE].decode(errors="replace"))
            return f" ({said})" if said else ""
    return ""


def _first_words(page: str) -> str:
    """The first line of a page that people would read: nothing of its tags, styles and scripts; bounded."""
    lines = (" ".join(line.split()) for line in _TAGS.sub(" ", page).splitlines())
    return safe(next(filter(None, lines), ""))[:200]


def _followable(url: str, location: str) -> str:
    """Where a redirect leads, if it may go there. Raises Trouble."""
    try:
        target = urllib.parse.urljoin(url, location)
        scheme = _origin(target)[0]
    except ValueError as error:
        raise Trouble(f"{_host(url)} redirects to what is no address: {safe(location)[:80]!r}") from error
    if scheme not in ("http", "https"):
        raise Trouble(f"{_host(url)} redirects to {safe(scheme)[:20]}://, which is not followed")
    if scheme == "http" and url.startswith("https:"):
        raise Trouble(f"{_host(url)} redirects from https to http, which is not followed")
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _host(url: str) -> str:
    """Whom we asked, for people: never the path or the query, which may hold a signature."""
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(url)
        return safe(parts.netloc.rpartition("@")[2])[:200] or "the server"
    return "the server"


def _lowered(headers: httpx.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
