"""Which files a source consists of, each with its address and what will prove its bytes.

Called by `agent.flight` before anything is fetched. An `https://` source is one file; an `hf://`
source is a repository of the configured hub, pinned to the commit that its revision names now.
"""

import dataclasses
import fnmatch
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
from llmgw.catalog.sources import Source

_REPOSITORY = re.compile(r"hf://(?P<repo>[^@]+)@(?P<revision>[^:]+)(?::(?P<files>.+))?\Z", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_LISTING = 64 * 2**20
_OTHER_FORMATS = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.gguf", "original/*")


@dataclasses.dataclass(frozen=True, slots=True)
class Hub:
    """Where `hf://` leads. The token goes to the endpoint and nowhere else."""

    endpoint: str = "https://huggingface.co"
    token: str = dataclasses.field(default="", repr=False)

    @property
    def credentials(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


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


class _Lfs(pydantic.BaseModel):
    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    size: int = pydantic.Field(ge=0)


class _Sibling(pydantic.BaseModel):
    rfilename: str
    size: int | None = pydantic.Field(default=None, ge=0)
    blob: str = pydantic.Field(default="", alias="blobId")
    lfs: _Lfs | None = None


class _Repository(pydantic.BaseModel):
    sha: str
    siblings: list[_Sibling]


async def contents(client: httpx.AsyncClient, hub: Hub, source: Source) -> Contents:
    """The files of `source`. Raises Trouble; a listing with one bad path is refused as a whole."""
    if source.scheme == "hf":
        return await _listed(client, hub, source)
    url = source.canonical.partition("#")[0]
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1]
    return Contents((Remote(_checked(name), url, sha256=source.sha256),))


async def _listed(client: httpx.AsyncClient, hub: Hub, source: Source) -> Contents:
    match = _REPOSITORY.match(source.canonical)
    assert match is not None, f"{source.canonical} passed catalog.sources.parse"
    repo, revision, pattern = match["repo"], match["revision"], match["files"] or ""
    endpoint = hub.endpoint.rstrip("/")
    url = f"{endpoint}/api/models/{repo}/revision/{urllib.parse.quote(revision, safe='')}?blobs=true"
    repository = _understood(await _ask(client, url, hub), revision)
    chosen = choose(tuple(each.rfilename for each in repository.siblings), pattern)
    if not chosen:
        raise Trouble(f"no file of {repo}@{revision} matches {pattern or 'a model'}")
    base = f"{endpoint}/{repo}/resolve/{repository.sha}/"
    files = [_remote(each, base, hub) for each in repository.siblings if each.rfilename in chosen]
    return Contents(tuple(sorted(files, key=lambda remote: remote.name)), repository.sha)


def choose(names: tuple[str, ...], pattern: str) -> frozenset[str]:
    """The files to fetch: what `pattern` matches; else all but dot files and copies in another format."""
    if pattern:
        return frozenset(name for name in names if fnmatch.fnmatchcase(name, pattern))
    plain = [name for name in names if not name.startswith(".")]
    if not any(name.endswith(".safetensors") for name in plain):
        return frozenset(plain)
    return frozenset(
        name for name in plain if not any(fnmatch.fnmatchcase(name, other) for other in _OTHER_FORMATS)
    )


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
    except ValueError as error:
        raise Trouble(f"the hub at {hub.endpoint} answers no JSON", passing=True) from error


def _said(status: int) -> str:
    help_ = {
        401: "; a token is needed (HF_TOKEN)",
        403: "; the token may not read it (accept the model's terms, or set HF_TOKEN)",
        404: "; no such repository or revision, or it needs a token (HF_TOKEN)",
    }
    return f"it answered {status}{help_.get(status, '')}"


def _understood(data: Any, revision: str) -> _Repository:
    try:
        repository = _Repository.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Trouble(f"the hub's listing cannot be used: {where}: {first['msg']}") from error
    if not _COMMIT.match(repository.sha):
        raise Trouble(f"the hub's listing names no commit but {repository.sha[:80]!r}")
    if re.fullmatch(r"[0-9a-f]{7,64}", revision) and not repository.sha.startswith(revision):
        raise Trouble(f"the hub answers with commit {repository.sha} where {revision} was asked for")
    names = [_checked(each.rfilename) for each in repository.siblings]
    taken = set(names)
    if len(taken) != len(names) or any(_parents(name) & taken for name in names):
        raise Trouble("the hub's listing names a file twice, or a file below a file")
    return repository


def _parents(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:depth]) for depth in range(1, len(parts))}


def _remote(sibling: _Sibling, base: str, hub: Hub) -> Remote:
    git = sibling.blob if re.fullmatch(r"[0-9a-f]{40}", sibling.blob) and sibling.size is not None else ""
    return Remote(
        name=sibling.rfilename,
        url=base + urllib.parse.quote(sibling.rfilename),
        size=sibling.lfs.size if sibling.lfs else sibling.size,
        sha256=sibling.lfs.sha256 if sibling.lfs else "",
        git_sha1="" if sibling.lfs else git,
        credentials=hub.credentials,
    )


def _checked(name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise Trouble(str(error)) from error
