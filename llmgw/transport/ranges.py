"""Pieces of files: of a directory, of a web server by HTTP Range, of a hub. Bounded in bytes and seconds.

Called by `transport.facts`, which knows which pieces say what a model is.
"""

import dataclasses
import json
import logging
import pathlib
import stat
import urllib.parse
from collections.abc import Mapping
from typing import Protocol

import httpx

from llmgw.catalog.hub import Hub, Listing, Repository, choose, repository
from llmgw.catalog.sources import Source
from llmgw.kit.text import safe

_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

MOST_DIGITS = 18
"""Of a length that a server says; more is no length of a file."""


class CannotRead(Exception):
    """Why the files that say what a model is could not be read or understood."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes. `headers` = safetensors files that are looked into; of a model with more, sizes must do."""

    connect: float = 3.0
    read: float = 5.0
    total: float = 30.0
    listing: int = 16 << 20
    config: int = 4 << 20
    index: int = 32 << 20
    headers: int = 256
    at_once: int = 8


class Files(Protocol):
    """The files of one model: their names with their bytes (0 = not said), and a piece of one."""

    async def sizes(self) -> Mapping[str, int]:
        """Every file. Raises CannotRead."""
        ...

    async def read(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes of `name` from `start`, fewer where it ends. Raises CannotRead."""
        ...


def make_client(limits: Limits) -> httpx.AsyncClient:
    """A client that takes the environment's proxies for other machines, and none for this one. Raises CannotRead."""
    for name in ("httpx", "httpcore"):
        # They log every address whole: a redirect's is a signature that opens the storage.
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(limits.read, connect=limits.connect),
            mounts=dict.fromkeys(_LOOPBACK),
            headers={"User-Agent": "llmgw", "Accept-Encoding": "identity"},
            follow_redirects=True,
            max_redirects=5,
        )
    except ValueError as error:
        raise CannotRead(
            f"the proxy settings of the environment cannot be used: {safe(str(error))[:200]}"
        ) from error


class OnDisk:
    """A model on this machine: a directory, or one file."""

    def __init__(self, path: pathlib.Path) -> None:
        self._root = path if path.is_dir() else path.parent
        self._only = "" if path.is_dir() else path.name

    async def sizes(self) -> Mapping[str, int]:
        try:
            if self._only:
                return {self._only: _regular(self._root / self._only)}
            return {entry.name: entry.stat().st_size for entry in self._root.iterdir() if entry.is_file()}
        except OSError as error:
            raise CannotRead(f"{self._root / self._only}: {error.strerror}") from error

    async def read(self, name: str, start: int, length: int) -> bytes:
        try:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise CannotRead(f"{self._root / name}: {error.strerror}") from error


def _regular(path: pathlib.Path) -> int:
    """Bytes of a file; what is none (a pipe that never ends) is not opened."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise CannotRead(f"{path} is no regular file")
    return found.st_size


def remote(client: httpx.AsyncClient, source: Source, hub: Hub, limits: Limits) -> Files:
    if source.scheme == "hf":
        return OnHub(client, hub, repository(source), limits)
    url = source.canonical.partition("#")[0]
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1]
    return OneFile(client, name, url)


class OneFile:
    """A model that is one file of a web server."""

    def __init__(self, client: httpx.AsyncClient, name: str, url: str) -> None:
        self._client, self._name, self._url = client, name, url

    async def sizes(self) -> Mapping[str, int]:
        return {self._name: await length(self._client, self._url)}

    async def read(self, name: str, start: int, length: int) -> bytes:  # noqa: ARG002 - it has one
        return await piece(self._client, self._url, {}, start, length)


class OnHub:
    """A model that is a repository of a hub, at the commit that its revision names now."""

    def __init__(self, client: httpx.AsyncClient, hub: Hub, at: Repository, limits: Limits) -> None:
        self._client, self._hub, self._at, self._limits = client, hub, at, limits
        self._commit = ""

    async def sizes(self) -> Mapping[str, int]:
        url, limit = self._hub.listing(self._at), self._limits.listing
        data = await piece(self._client, url, self._hub.credentials, 0, limit, whole=True)
        try:
            listing = Listing.model_validate(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise CannotRead(f"the hub's listing of {self._at.name} cannot be used") from error
        self._commit = urllib.parse.quote(listing.sha, safe="")
        chosen = choose(tuple(each.rfilename for each in listing.siblings), self._at.files)
        if not chosen:
            raise CannotRead(
                f"no file of {self._at.name}@{self._at.revision} matches {self._at.files or 'a model'}"
            )
        return {each.rfilename: each.length or 0 for each in listing.siblings if each.rfilename in chosen}

    async def read(self, name: str, start: int, length: int) -> bytes:
        url = self._hub.file(self._at, self._commit, name)
        return await piece(self._client, url, self._hub.credentials, start, length)


async def piece(
    client: httpx.AsyncClient,
    url: str,
    credentials: Mapping[str, str],
    start: int,
    length: int,
    *,
    whole: bool = False,
) -> bytes:
    """`length` bytes at `start` of what `url` names, fewer where it ends; `whole`: all of it, at most `length`.

    Credentials stay behind when a redirect leads to another origin. Raises CannotRead.
    """
    if length <= 0:
        return b""
    headers = dict(credentials) if whole else {**credentials, "Range": f"bytes={start}-{start + length - 1}"}
    host = urllib.parse.urlsplit(url).netloc
    try:
        async with client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416:
                return b""
            if response.status_code not in (200, 206):
                raise CannotRead(f"{host} answered {response.status_code}")
            if response.status_code == 200 and start:
                raise CannotRead(f"{host} serves no ranges")
            if response.status_code == 206 and not _begins(response, start):
                raise CannotRead(f"{host} answered with another range than the one asked for")
            return await _bounded(response, length)
    except httpx.HTTPError as error:
        raise CannotRead(f"{host}: {safe(str(error))[:200] or type(error).__name__}") from error


async def length(client: httpx.AsyncClient, url: str) -> int:
    """Bytes of what `url` names; 0 where the server does not say. Raises CannotRead."""
    host = urllib.parse.urlsplit(url).netloc
    try:
        async with client.stream("GET", url, headers={"Range": "bytes=0-0"}) as response:
            if response.status_code not in (200, 206):
                raise CannotRead(f"{host} answered {response.status_code}")
            said = response.headers.get("content-range", "").rpartition("/")[2]
            if response.status_code == 200:
                said = response.headers.get("content-length", "")
            return int(said) if said.isascii() and said.isdecimal() and len(said) <= MOST_DIGITS else 0
    except httpx.HTTPError as error:
        raise CannotRead(f"{host}: {safe(str(error))[:200] or type(error).__name__}") from error


def _begins(response: httpx.Response, start: int) -> bool:
    return str(response.headers.get("content-range", "")).startswith(f"bytes {start}-")


async def _bounded(response: httpx.Response, length: int) -> bytes:
    """The first `length` bytes of the body; the rest is not waited for."""
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) >= length:
            break
    return bytes(data[:length])
