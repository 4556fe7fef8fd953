"""Which files a source consists of, each with its address and what will prove its bytes.

Called by `agent.flight` before anything is fetched. An `https://` source is one file; an `hf://`
source is a repository of the configured hub, pinned to the commit that its revision names now.
"""

import dataclasses
import json
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

import httpx
import pydantic

from llmgw.agent.answer import Anew, Elsewhere, Later, Never, Verdict
from llmgw.agent.fetch import Remote, Trouble, asking, read_bounded
from llmgw.agent.manifest import checked_name
from llmgw.catalog.hub import Hub, Listing, Sibling, choose, repository
from llmgw.catalog.sources import Source

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_LISTING = 64 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """The files of a source. `revision` is the commit they are of, empty for one that has none."""

    files: tuple[Remote, ...]
    revision: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where one of them is not known."""
        sizes = [remote.size for remote in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


async def contents(client: httpx.AsyncClient, hub: Hub, source: Source) -> Contents:
    """The files of `source`. Raises Trouble; a listing with one bad path is refused as a whole."""
    if source.scheme == "hf":
        return await _listed(client, hub, source)
    url = source.canonical.partition("#")[0]
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1]
    return Contents((Remote(_checked(name), url, sha256=source.sha256),))


async def _listed(client: httpx.AsyncClient, hub: Hub, source: Source) -> Contents:
    at = repository(source)
    listing = _understood(await _ask(client, hub.listing(at), hub), at.revision)
    chosen = choose(tuple(each.rfilename for each in listing.siblings), at.files)
    if not chosen:
        raise Trouble(f"no file of {at.name}@{at.revision} matches {at.files or 'a model'}")
    files = [
        _remote(each, hub.file(at, listing.sha, each.rfilename), hub)
        for each in listing.siblings
        if each.rfilename in chosen
    ]
    return Contents(tuple(sorted(files, key=lambda remote: remote.name)), listing.sha)


async def _ask(client: httpx.AsyncClient, url: str, hub: Hub) -> Any:
    def decide(status: int, headers: Mapping[str, str]) -> Verdict:
        if status in (301, 302, 303, 307, 308) and headers.get("location"):
            return Elsewhere(headers["location"])
        if status == 200:
            return Anew(None, "")
        return Later(_said(status)) if status == 429 or status >= 500 else Never(_said(status))

    headers = {"Accept-Encoding": "identity", "Accept": "application/json"}
    async with asking(client, url, headers, hub.credentials, decide) as (response, verdict):
        if not isinstance(verdict, Anew):
            said = verdict.said if isinstance(verdict, Later | Never) else "it redirects too often"
            raise Trouble(f"the hub at {hub.endpoint}: {said}", passing=isinstance(verdict, Later))
        body = await read_bounded(response, _LISTING)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Trouble(f"the hub at {hub.endpoint} answers no JSON", passing=True) from error


def _said(status: int) -> str:
    help_ = {
        401: "; a token is needed (HF_TOKEN)",
        403: "; the token may not read it (accept the model's terms, or set HF_TOKEN)",
        404: "; no such repository or revision, or it needs a token (HF_TOKEN)",
    }
    return f"it answered {status}{help_.get(status, '')}"


def _understood(data: Any, revision: str) -> Listing:
    try:
        listing = Listing.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Trouble(f"the hub's listing cannot be used: {where}: {first['msg']}") from error
    if not _COMMIT.match(listing.sha):
        raise Trouble(f"the hub's listing names no commit but {listing.sha[:80]!r}")
    if re.fullmatch(r"[0-9a-f]{7,64}", revision) and not listing.sha.startswith(revision):
        raise Trouble(f"the hub answers with commit {listing.sha} where {revision} was asked for")
    names = [_checked(each.rfilename) for each in listing.siblings]
    taken = set(names)
    if len(taken) != len(names) or any(_parents(name) & taken for name in names):
        raise Trouble("the hub's listing names a file twice, or a file below a file")
    return listing


def _parents(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:depth]) for depth in range(1, len(parts))}


def _remote(sibling: Sibling, url: str, hub: Hub) -> Remote:
    git = sibling.blob if re.fullmatch(r"[0-9a-f]{40}", sibling.blob) and sibling.size is not None else ""
    return Remote(
        name=sibling.rfilename,
        url=url,
        size=sibling.length,
        sha256=sibling.lfs.sha256 if sibling.lfs else "",
        git_sha1="" if sibling.lfs else git,
        credentials=hub.credentials,
    )


def _checked(name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise Trouble(str(error)) from error
