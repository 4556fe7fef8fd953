"""The directory of a fetch under way: `<cache name>.partial/`, its note, and the lock on it.

`agent.flight` opens one, `agent.fetch` fills its files, and `commit` makes it an entry by one
rename. The note says which source it is of, and for each file the strong ETag and the length it came
under: what a later process needs to go on instead of starting again. The lock is a `flock` on the
directory itself, so it ends with the process that held it and leaves no file behind.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import secrets
import shutil
import stat
from typing import Self

import pydantic

from llmgw.agent import manifest
from llmgw.agent.answer import Have
from llmgw.agent.confine import own_directory
from llmgw.agent.manifest import FILES, FileRecord, Manifest, checked_name
from llmgw.kit.files import open_regular, sync_directory, write_atomic

SUFFIX = ".partial"
TRASH = ".trash-"
NOTE = "partial.json"


WRONG = 2
"""Times that the same bytes come whole and wrong before they are not asked for again."""


class Wrong(pydantic.BaseModel):
    """What came whole and was not the file: `version` is the server's, `said` why, `times` how often in a row."""

    version: str
    said: str
    times: int = 1


class FileNote(pydantic.BaseModel):
    """One file that was begun. `sha256` is set once it is whole, checked and synced."""

    etag: str = ""
    total: int | None = None
    boot: str = ""
    sha256: str = ""
    wrong: Wrong | None = None


class Note(pydantic.BaseModel):
    """What is known of a fetch under way."""

    format: int = manifest.FORMAT
    source: str
    files: dict[str, FileNote] = {}

    @pydantic.field_validator("files")
    @classmethod
    def _below(cls, files: dict[str, FileNote]) -> dict[str, FileNote]:
        for name in files:
            checked_name(name)
        return files


def parse_note(data: bytes) -> Note | None:
    """The note that `data` spells; None if it is none of a format that we know."""
    try:
        note = Note.model_validate_json(data)
    except pydantic.ValidationError:
        return None
    return note if note.format == manifest.FORMAT else None


def built_on(noted: FileNote | None, size: int | None, *, checked: bool, boot: str) -> Have:
    """What of a file that has `size` bytes now (None = it is none) the rest can be added to.

    Bytes from before a reboot count only where a digest will prove them: they may be holes.
    """
    if noted is None or size is None or not (checked or noted.boot == boot):
        return Have()
    if noted.total is not None and size > noted.total:
        return Have()
    return Have(size, noted.etag, noted.total)


def finished(name: str, noted: FileNote | None, size: int) -> FileRecord | None:
    """The record of a file of `size` bytes that was noted as whole; None where it is not, or no longer."""
    if noted is None or not noted.sha256 or noted.total is None or size != noted.total:
        return None
    return FileRecord(name=name, size=noted.total, sha256=noted.sha256)


class Digests:
    """The digests of the first `size` bytes of a file, and the way to go on."""

    def __init__(self, git_size: int | None = None) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        # Not for secrecy: it is how a hub names small files.
        start = f"blob {git_size}\0".encode()
        self._git = None if git_size is None else hashlib.sha1(start, usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        self.size += len(piece)
        self._sha256.update(piece)
        if self._git is not None:
            self._git.update(piece)

    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def git_sha1(self) -> str:
        """The name git gives to a blob of these bytes, if they are `git_size`; empty where none was said."""
        return "" if self._git is None else self._git.hexdigest()


class Partial:
    """One fetch under way, locked by this process until `close`."""

    def __init__(self, directory: pathlib.Path, lock: int, note: Note, boot: str) -> None:
        self.directory = directory
        self._lock = lock
        self._note = note
        self._boot = boot

    @classmethod
    def open(cls, root: pathlib.Path, source: str, boot: str) -> Self | None:
        """The partial of `source` below `root`, made if it is missing. None = another process has it.

        `boot` names the running kernel: bytes of an earlier one may have been lost with its cache.
        """
        directory = root / (manifest.name_of(source) + SUFFIX)
        _reopen(root / manifest.name_of(source), directory)
        own_directory(directory)
        lock = _locked(directory)
        if lock is None:
            return None
        try:
            partial = cls(directory, lock, _read_note(directory, source), boot)
            partial.save()
            own_directory(directory / FILES)
        except BaseException:
            os.close(lock)
            raise
        return partial

    def close(self) -> None:
        """Let go of the lock; what is there stays, to be resumed or collected."""
        os.close(self._lock)

    def save(self) -> None:
        """Write the note; durable on return."""
        write_atomic(self.directory / NOTE, self._note.model_dump_json().encode())

    def path(self, name: str) -> pathlib.Path:
        return self.directory / FILES / name

    def have(self, name: str, *, checked: bool) -> Have:
        """What can be built on."""
        try:
            status = self.path(name).lstat()
        except FileNotFoundError:
            return Have()
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        return built_on(self._note.files.get(name), size, checked=checked, boot=self._boot)

    def done(self, name: str) -> FileRecord | None:
        """The record of a file that is whole, checked and synced already."""
        return finished(name, self._note.files.get(name), self.have(name, checked=True).size)

    def expect(self, names: tuple[str, ...]) -> None:
        """Note files before they exist: nothing stands here that the note does not know."""
        for name in names:
            self._note.files.setdefault(name, FileNote())
            for above in reversed(pathlib.PurePosixPath(name).parents[:-1]):
                own_directory(self.path(str(above)))
        self.save()

    def begin(self, name: str, total: int | None, etag: str) -> None:
        """Remove the file: other bytes, of this ETag and length, are about to come."""
        wrong = self._wrong(name)
        self._note.files[name] = FileNote(etag=etag, total=total, boot=self._boot, wrong=wrong)
        self.save()
        self.path(name).unlink(missing_ok=True)

    def open_file(self, name: str) -> int:
        """A descriptor for reading and appending. The caller closes it."""
        return open_regular(self.path(name), os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def finish(self, name: str, size: int, sha256: str) -> None:
        """The file is whole and right: sync it, then note it."""
        fd = self.open_file(name)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        noted = self._note.files[name]
        self._note.files[name] = noted.model_copy(update={"total": size, "sha256": sha256})
        self.save()

    def void(self, name: str) -> None:
        """The file is worth nothing: remove it."""
        self.path(name).unlink(missing_ok=True)
        self._note.files[name] = FileNote(wrong=self._wrong(name))
        self.save()

    def came_wrong(self, name: str, version: str, said: str) -> None:
        """The file came whole, as the server's `version` of it, and `said` is what was wrong with it."""
        last = self._wrong(name)
        again = last is not None and (last.version, last.said) == (version, said)
        wrong = Wrong(version=version, said=said, times=last.times + 1 if last is not None and again else 1)
        self._note.files[name] = self._note.files[name].model_copy(update={"wrong": wrong})
        self.save()

    def proven_wrong(self, name: str, version: str) -> str:
        """What is wrong with the server's `version` of a file, where it came often enough; else empty."""
        wrong = self._wrong(name)
        proven = wrong is not None and wrong.times >= WRONG and wrong.version == version
        return wrong.said if wrong is not None and proven else ""

    def _wrong(self, name: str) -> Wrong | None:
        noted = self._note.files.get(name)
        return None if noted is None else noted.wrong

    def commit(self, whole: Manifest) -> pathlib.Path:
        """Become the entry: manifest, then one rename. Durable on return; the lock is let go."""
        self._prune({record.name for record in whole.files})
        for directory, _, _ in os.walk(self.directory / FILES):
            sync_directory(pathlib.Path(directory))
        manifest.write(self.directory, whole)
        return self.settle(whole)

    def settle(self, whole: Manifest) -> pathlib.Path:
        """The last step of `commit`, also for a process that died just before it."""
        root = self.directory.parent
        entry = root / whole.cache_name
        for leftover in (self.directory / NOTE, *self.directory.glob(".*.tmp")):
            leftover.unlink(missing_ok=True)
        # An entry that lost a file: nobody holds it, and its name is needed.
        discard(entry)
        self.directory.rename(entry)
        sync_directory(root)
        return entry

    def discard(self) -> None:
        """Remove all of it. The lock is still held."""
        discard(self.directory)

    def _prune(self, names: set[str]) -> None:
        for directory, _, files in os.walk(self.directory / FILES):
            for each in files:
                path = pathlib.Path(directory, each)
                if str(path.relative_to(self.directory / FILES)) not in names:
                    path.unlink()


def discard(directory: pathlib.Path) -> None:
    """Remove a directory of ours: out of sight by one rename first, so that no half of it is ever seen."""
    trash = directory.with_name(f"{TRASH}{directory.name}-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        directory.rename(trash)
        shutil.rmtree(trash)


def _locked(directory: pathlib.Path) -> int | None:
    """A locked descriptor of the directory that has this name now; None if another process has it."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between our open and our lock its holder may have made an entry of it.
        if os.path.samestat(os.fstat(fd), directory.lstat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _reopen(entry: pathlib.Path, directory: pathlib.Path) -> None:
    """Turn an entry that lost a file back into a fetch under way: what is left of it need not come again."""
    found = manifest.read(entry)
    if found is not None and manifest.lacking(entry, found):
        # A partial that is there already knows more: then this is not done.
        with contextlib.suppress(OSError):
            entry.rename(directory)


def _read_note(directory: pathlib.Path, source: str) -> Note:
    """What the note says, else what a manifest there says, of this source; else an empty one."""
    try:
        note = parse_note(manifest.read_small(directory / NOTE))
    except OSError:
        note = note_of(manifest.read(directory))
    return note if note is not None and note.source == source else Note(source=source)


def note_of(found: Manifest | None) -> Note | None:
    """What a manifest tells that a note would: every file of it was finished."""
    if found is None:
        return None
    files = {each.name: FileNote(total=each.size, sha256=each.sha256) for each in found.files}
    return Note(source=found.source, files=files)
