"""A catalog as a whole, or refused as a whole: bytes → trees → documents → checks → `Catalog`.

Called by the control plane with the bytes it was sent (`load_files`) or follows (a `Cache`), by `llmgw
validate` (`snapshot`, then `check`), and by tests. This is the only module of the room that touches
the file system, in `read`.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping, Sequence

from llmgw.catalog import checks
from llmgw.catalog.book import Book, amended, book
from llmgw.catalog.builder import MAX_BYTES, build
from llmgw.catalog.diagnostics import MAX_PROBLEMS, Diagnostic, Invalid, Spot, ordered
from llmgw.catalog.model import Catalog, Place
from llmgw.catalog.reading import Written
from llmgw.catalog.reading import read as read_tree
from llmgw.catalog.resolve import Meaning, Whole, meaning, resolve
from llmgw.catalog.tree import Tree
from llmgw.kit.garbage import uncollected
from llmgw.kit.text import safe

MAX_FILES = 50_000
MAX_TOTAL = 256 << 20
"""Files and bytes of one catalog. Beyond them something else was pointed at by mistake."""


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """What came of a catalog: None where there are errors; the diagnostics hold warnings too."""

    catalog: Catalog | None
    diagnostics: Sequence[Diagnostic]


def load(path: pathlib.Path) -> Catalog:
    """The catalog below the directory `path`. Raises Invalid with every problem in it."""
    files, unreadable = snapshot(path)
    return _valid(check(files, unreadable))


def load_files(files: Mapping[str, bytes]) -> Catalog:
    """The catalog in `files` (name below the catalog → bytes). Raises Invalid with every problem in it."""
    return _valid(check(files))


def _valid(checked: Checked) -> Catalog:
    if checked.catalog is None:
        raise Invalid(checked.diagnostics)
    return checked.catalog


def check(files: Mapping[str, bytes], before: Sequence[Diagnostic] = ()) -> Checked:
    """Everything about the catalog in `files`; `before` are problems that reading them already had."""
    return Cache().check(files, before)


@dataclasses.dataclass(frozen=True, slots=True)
class _Page:
    """All that one file came to, whatever the others say."""

    data: bytes
    written: Written
    problems: tuple[Diagnostic, ...] = ()
    meaning: Meaning | None = None


class Cache:
    """Checks one snapshot of a catalog after the other; only files that differ are read again.

    For whoever follows a catalog: keep one, and give it each new snapshot, whole.

        cache = Cache()
        files, unreadable = snapshot(path)
        checked = cache.check(files, unreadable)   # seconds for ten thousand files
        ...                                        # somebody edits one
        files, unreadable = snapshot(path)
        checked = cache.check(files, unreadable)   # milliseconds: that one, against the names of all

    The answer is what `check` says of the same files. A file is known by its name and its bytes;
    one that is gone is forgotten. It holds the documents of the last snapshot. Not for two threads.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        self._last: _Right | None = None

    def check(self, files: Mapping[str, bytes], before: Sequence[Diagnostic] = ()) -> Checked:
        """Everything about the catalog in `files`; `before` are problems that reading them already had."""
        with uncollected():
            old, changed = self._pages, self._turn_to(files)
            last, self._last = self._last, None
            if last is not None and not before and len(old) == len(files) and not old.keys() - files.keys():
                kept = all(_keeps_its_names(old[name], self._pages[name]) for name in changed)
                self._last = _amended(last, self._pages, changed) if kept else None
            if self._last is None:
                checked, self._last = _compared(list(self._pages.values()), before)
                return checked
            return Checked(self._last.whole.catalog, self._warnings())

    def _warnings(self) -> list[Diagnostic]:
        return ordered(problem for page in self._pages.values() for problem in page.problems)

    def _turn_to(self, files: Mapping[str, bytes]) -> list[str]:
        """Have the page of each of `files`, and no other. Returns the names of those that were read for it."""
        old = self._pages
        pages: dict[str, _Page] = {}
        changed: list[str] = []
        for name in sorted(files):
            data, page = files[name], old.get(name)
            if page is None or (page.data is not data and page.data != data):
                page = _read(name, data)
                changed.append(name)
            pages[name] = page
        self._pages = pages
        return changed


def _read(name: str, data: bytes) -> _Page:
    tree = build(name, data)
    written, problems = read_tree(tree)
    found = (*tree.problems, *problems, *checks.alone(written))
    errors = tuple(problem for problem in found if problem.severity == "error")
    if len(found) > MAX_PROBLEMS:
        found = (errors or found)[:MAX_PROBLEMS]
    return _Page(data, written, found, None if errors else meaning(written))


@dataclasses.dataclass(frozen=True, slots=True)
class _Right:
    """A catalog without an error: its book, and what it came to."""

    everything: Book
    whole: Whole


def _compared(pages: Sequence[_Page], before: Sequence[Diagnostic]) -> tuple[Checked, _Right | None]:
    """The pages against each other."""
    lost = [Written(Tree(problem.place.file, b"", parsed=False)) for problem in before]
    everything = book([*(page.written for page in pages), *lost])
    found = [*before, *(problem for page in pages for problem in page.problems)]
    found += checks.together(everything)
    if any(problem.severity == "error" for problem in found):
        return Checked(None, ordered(found)), None
    whole = resolve(everything, (page.meaning for page in pages if page.meaning is not None))
    return Checked(whole.catalog, ordered(found)), _Right(everything, whole)


def _keeps_its_names(old: _Page, new: _Page) -> bool:
    """Whether nothing that others may refer to is gone from the file, and nothing is wrong in it by itself."""
    was, now = old.written, new.written
    same = (was.kind, was.name) == (now.kind, now.name) and set(was.aliases) <= set(now.aliases)
    return same and old.meaning is not None and new.meaning is not None


def _amended(last: _Right, pages: Mapping[str, _Page], changed: Sequence[str]) -> _Right | None:
    """`last` with other documents in some files; None where they are not right beside the others.

    No document that stayed is looked at: it was right beside the same names.
    """
    if not changed:
        return last
    new = [pages[name] for name in changed]
    written = [page.written for page in pages.values()]
    everything = amended(last.everything, written, (page.written for page in new))
    asked = dataclasses.replace(everything, written=[page.written for page in new])
    if next(iter(checks.together(asked)), None) is not None:
        return None
    meanings = (page.meaning for page in new if page.meaning is not None)
    return _Right(everything, resolve(everything, meanings, last.whole))


def read(path: pathlib.Path) -> dict[str, bytes]:
    """A snapshot of the YAML files below the directory `path`: name below it → bytes, by name.

    Names that begin with a dot are left out. Raises Invalid where anything cannot be read: what
    cannot be read is never taken for absent.
    """
    files, unreadable = snapshot(path)
    if unreadable:
        raise Invalid(unreadable)
    return files


def snapshot(path: pathlib.Path, *, prefix: str = "") -> tuple[dict[str, bytes], list[Diagnostic]]:
    """As `read`, with what could not be read beside it, and `prefix` before every name."""
    files: dict[str, bytes] = {}
    problems: list[Diagnostic] = []
    total = 0
    for name, found in _walk(path):
        if isinstance(found, str):
            problems.append(_unreadable(str(path) if name == "." else prefix + name, found))
            continue
        files[prefix + name] = found
        total += len(found)
        if len(files) > MAX_FILES or total > MAX_TOTAL:
            said = f"this is too much for a catalog: {MAX_FILES} files and {MAX_TOTAL >> 20} MiB are the most"
            problems.append(_unreadable(prefix + name, said))
            break
    return dict(sorted(files.items())), problems


def _walk(root: pathlib.Path) -> Iterator[tuple[str, bytes | str]]:
    """The name of each YAML file below `root`, with its bytes or with the reason why there are none."""
    waiting = [(str(root), "")]
    while waiting:
        directory, prefix = waiting.pop()
        try:
            with os.scandir(directory) as listing:
                entries = [entry for entry in listing if not entry.name.startswith(".")]
        except OSError as error:
            yield prefix.rstrip("/") or ".", f"cannot list this directory: {error.strerror}"
            continue
        for entry in entries:
            found = _look(entry, root)
            if found is _DIRECTORY:
                waiting.append((entry.path, f"{prefix}{entry.name}/"))
            elif found is not None:
                yield prefix + entry.name, found


_DIRECTORY = "directory"


def _look(entry: os.DirEntry[str], root: pathlib.Path) -> bytes | str | None:
    """_DIRECTORY, the bytes of a YAML file, why there are none, or None for what is no YAML."""
    try:
        is_link = entry.is_symlink()
        if entry.is_dir():
            return "a link to a directory is not followed" if is_link else _DIRECTORY
        if not entry.name.lower().endswith((".yaml", ".yml")):
            return None
        if is_link and not pathlib.Path(entry.path).resolve().is_relative_to(root.resolve()):
            return "this link leads out of the catalog"
        return file_bytes(entry.path) if entry.name.isprintable() else "this file name cannot be printed"
    except OSError as error:
        return f"cannot read this file: {error.strerror}"


def file_bytes(path: str) -> bytes | str:
    """What is in a file, at most a byte more than is allowed; why it is none that is read. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return "this is no regular file"
    # It may have become a pipe since: opening that must not wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = min(os.fstat(fd).st_size, MAX_BYTES) + 1
        data = os.read(fd, size)
        if len(data) == size - 1:  # a read that brings less than it may has come to the end
            return data
        while len(data) <= MAX_BYTES and (more := os.read(fd, size)):
            data += more
        return data
    finally:
        os.close(fd)


def _unreadable(name: str, said: str) -> Diagnostic:
    return Diagnostic("E109", said, Spot(Place(safe(name))))
