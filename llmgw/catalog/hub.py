"""The hub that `hf://` leads to: its addresses, its listing of a repository, and which files a model is of.

Called by the agent, which fetches them, and by `transport.ranges`, which reads their first bytes. Pure:
both bring their own connections and their own errors.
"""

import dataclasses
import fnmatch
import re
import urllib.parse
from collections.abc import Mapping

import pydantic

from llmgw.catalog.sources import Source

_REPOSITORY = re.compile(r"hf://(?P<repo>[^@]+)@(?P<revision>[^:]+)(?::(?P<files>.+))?\Z", re.ASCII)
_OTHER_FORMATS = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.gguf", "original/*")


@dataclasses.dataclass(frozen=True, slots=True)
class Hub:
    """Where `hf://` leads. The token goes to the endpoint and nowhere else."""

    endpoint: str = "https://huggingface.co"
    token: str = dataclasses.field(default="", repr=False)

    @property
    def credentials(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def listing(self, at: "Repository") -> str:
        """The address that lists the files of `at`."""
        revision = urllib.parse.quote(at.revision, safe="")
        return f"{self.endpoint.rstrip('/')}/api/models/{at.name}/revision/{revision}?blobs=true"

    def file(self, at: "Repository", commit: str, name: str) -> str:
        """The address of one file of `at`, as it is in `commit`."""
        return f"{self.endpoint.rstrip('/')}/{at.name}/resolve/{commit}/{urllib.parse.quote(name)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Repository:
    """What an `hf://` source names; `files` is one name or a pattern, empty for a whole model."""

    name: str
    revision: str
    files: str = ""


def repository(source: Source) -> Repository:
    """The parts of an `hf://` source."""
    match = _REPOSITORY.match(source.canonical)
    assert match is not None, f"{source.canonical} passed catalog.sources.parse"
    return Repository(match["repo"], match["revision"], match["files"] or "")


class Lfs(pydantic.BaseModel):
    """A large file: its digest and its bytes."""

    sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    size: int = pydantic.Field(ge=0)


class Sibling(pydantic.BaseModel):
    """One file of a repository, as the hub lists it."""

    rfilename: str
    size: int | None = pydantic.Field(default=None, ge=0)
    blob: str = pydantic.Field(default="", alias="blobId")
    lfs: Lfs | None = None

    @property
    def length(self) -> int | None:
        """Its bytes, None where the hub does not say."""
        return self.lfs.size if self.lfs else self.size


class Listing(pydantic.BaseModel):
    """The hub's answer about a repository: its commit and its files."""

    sha: str
    siblings: list[Sibling]


def choose(names: tuple[str, ...], pattern: str) -> frozenset[str]:
    """The files of a model: what `pattern` matches; else all but dot files and copies in another format."""
    if pattern:
        return frozenset(name for name in names if fnmatch.fnmatchcase(name, pattern))
    plain = [name for name in names if not name.startswith(".")]
    if not any(name.endswith(".safetensors") for name in plain):
        return frozenset(plain)
    return frozenset(
        name for name in plain if not any(fnmatch.fnmatchcase(name, other) for other in _OTHER_FORMATS)
    )
