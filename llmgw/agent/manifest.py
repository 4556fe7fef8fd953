"""What a cache entry says about itself: the one mark of completeness, written last.

`agent.flight` writes it when every file is fetched, checked and synced; `agent.cache` reads it
back from the disk each time somebody asks, and `agent.collect` before it removes anything.

    <cache>/<cache name>/manifest.json
    <cache>/<cache name>/files/…           as the source names them
"""

import hashlib
import os
import pathlib
import stat

import pydantic

from llmgw.agent import confine
from llmgw.kit.files import read_regular, write_atomic

MANIFEST = "manifest.json"
FILES = "files"
FORMAT = 1
_LARGEST = 64 * 2**20


class FileRecord(pydantic.BaseModel):
    """One file below `files/`. Size in bytes; `sha256` of the bytes that were received and synced."""

    model_config = pydantic.ConfigDict(frozen=True)

    name: str
    size: int = pydantic.Field(ge=0)
    sha256: str

    @pydantic.field_validator("name")
    @classmethod
    def _below(cls, name: str) -> str:
        return checked_name(name)


class Manifest(pydantic.BaseModel):
    """A whole entry. `revision` is the commit of a hub's repository, empty elsewhere."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    format: int = FORMAT
    source: str
    revision: str = ""
    files: tuple[FileRecord, ...]
    fetched_at: str

    @property
    def cache_name(self) -> str:
        """The name that an entry with this manifest must have."""
        return name_of(self.source)


def name_of(canonical: str) -> str:
    """The cache name of a source by its canonical spelling."""
    return hashlib.sha256(canonical.encode()).hexdigest()


def checked_name(name: str) -> str:
    """`name` if it stays below the directory it is joined to. Raises ValueError that says why not."""
    parts = name.split("/")
    if not name or len(name) > 1024 or any(len(part.encode()) > 255 for part in parts):
        raise ValueError(f"cannot use the file name {name[:80]!r}: it is empty or too long")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name:
        raise ValueError(f"cannot use the file name {name!r}: it leaves its directory")
    if not name.isprintable():
        raise ValueError(f"cannot use the file name {name!r}: it holds control characters")
    return name


def write(directory: pathlib.Path, manifest: Manifest) -> None:
    """Write the manifest of the entry in `directory`; durable on return."""
    write_atomic(directory / MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n")


def read(directory: pathlib.Path) -> Manifest | None:
    """The manifest in `directory`. None where there is none, or none that can be read and understood."""
    try:
        return parse(read_small(directory / MANIFEST))
    except OSError:
        return None


def parse(data: bytes) -> Manifest | None:
    """The manifest that `data` spells; None if it is none of a format that we know."""
    try:
        manifest = Manifest.model_validate_json(data)
    except pydantic.ValidationError:
        return None
    return manifest if manifest.format == FORMAT else None


def read_small(path: pathlib.Path) -> bytes:
    """The bytes of a file that people could have put there: never more than 64 MiB of it."""
    return read_regular(path, _LARGEST)


def lacking(directory: pathlib.Path, manifest: Manifest) -> str:
    """What keeps the entry from being whole, for people; empty = every file is there at its size."""
    try:
        root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return f"{directory.name} cannot be read ({error.strerror})"
    try:
        flaws = (_flaw(root, record) for record in manifest.files)
        return next((flaw for flaw in flaws if flaw), "")
    finally:
        os.close(root)


def _flaw(root: int, record: FileRecord) -> str:
    try:
        with confine.opened_below(root, f"{FILES}/{record.name}", os.O_PATH) as fd:
            found = os.fstat(fd)
    except OSError as error:
        return f"{record.name} cannot be read ({error.strerror})"
    return flaw_of(record, found.st_size if stat.S_ISREG(found.st_mode) else None)


def flaw_of(record: FileRecord, size: int | None) -> str:
    """Why a file of `size` bytes (None = it is no regular one) is not what was recorded; empty = it is."""
    if size is None:
        return f"{record.name} is no regular file"
    return "" if size == record.size else f"{record.name} has {size} bytes, {record.size} were fetched"
