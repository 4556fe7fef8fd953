"""The catalog as commits have it: read from git's objects, never from the work tree.

Used by `watch`, from a thread; the twin of `trees.Directory`. Nothing is checked out, nothing in the
repository is written: plumbing only, without optional locks. What git tells by its names is used: trees and
blobs that were seen are kept by them, so a look costs what the commit changed.
"""

import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Mapping

from llmgw.catalog.builder import MAX_BYTES
from llmgw.catalog.load import MAX_FILES, MAX_TOTAL
from llmgw.control.objects import (
    DIRECTORY,
    PATIENCE,
    Entry,
    Objects,
    asked,
    cannot_run,
    command,
)
from llmgw.control.trees import Spot, Tree, Unreadable, git_directories, spot_at, work_tree
from llmgw.kit.children import git_environment
from llmgw.kit.files import read_regular
from llmgw.kit.text import safe
from llmgw.kit.units import show_memory

_MEANT = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""While one of these is there, HEAD moves through commits that nobody means; it names the branch that is."""

_REGULAR = ("100644", "100755", "100664")
_SUBMODULE = "160000"
_SHOWN = 20


_NOTHING = Tree("")


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    """One commit as it was read: the tree `below` a directory, its files, and what is kept to read the next."""

    tree: Tree = _NOTHING
    commit: str = ""
    below: str = ""
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    trees: Mapping[str, tuple[Entry, ...]] = dataclasses.field(default_factory=dict)
    blobs: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


class Commits:
    """The YAML files below `path` in the commit that `ref` names."""

    def __init__(self, path: pathlib.Path, ref: str = "HEAD") -> None:
        self._path, self._ref = path, ref
        self._last = _Reading()

    @property
    def said(self) -> str:
        return f"commits of {self._ref} below {self._path}"

    def look(self) -> Tree:
        """The commit as it is now, with all its files read. Raises Unreadable."""
        top, below = self._where()
        ref = self._meant(top)
        with asked(top) as objects:
            header, data = objects.one(f"{ref}^{{commit}}", MAX_BYTES) if ref.isprintable() else (None, b"")
            if header is None or header.kind != "commit" or not data:
                raise Unreadable(
                    f"cannot read the catalog: there is no commit {safe(ref)}",
                    help="it is waited for: commit the catalog, or name another --ref",
                )
            if (header.name, below) != (self._last.commit, self._last.below):
                self._last = self._read(objects, header.name, _Commit.of(data), below)
        return self._last.tree

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of the tree of the last look, by their names in the repository."""
        if self._last.tree.mark != tree.mark:
            raise ValueError("only the tree of the last look can be read")
        return self._last.files

    def dirty(self) -> tuple[str, ...]:
        """Files of the catalog that stand otherwise than in HEAD, or in no commit at all. Raises Unreadable."""
        top, below = self._where()
        said = _status(top, "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", below or ".")
        names = [safe(entry[3:]) for entry in said.split("\0") if entry.lower().endswith((".yaml", ".yml"))]
        return tuple(names[:_SHOWN])

    def _read(self, objects: Objects, name: str, commit: "_Commit", below: str) -> _Reading:
        last, walk = self._last, _Walk(objects, self._last.trees)
        mark = walk.find(commit.tree, below)
        if not mark:
            raise Unreadable(
                f"cannot read the catalog: commit {name[:12]} has no {below}/",
                help="it is waited for: commit the catalog there, or name another --catalog",
            )
        tree = Tree(mark, "", name[:12], commit.who, commit.message, commit.parents)
        if (mark, below) == (last.tree.mark, last.below):
            return dataclasses.replace(last, tree=tree, commit=name)
        listed = walk.files(mark, below)
        blobs = _blobs(objects, listed, last.blobs)
        files = {name: blobs[blob] for name, blob in listed.items()}
        return _Reading(tree, name, below, files, walk.seen, blobs)

    def spots(self) -> frozenset[Spot]:
        """Where git writes when a ref moves."""
        try:
            top, _ = self._where()
            own, common = git_directories(top)
        except Unreadable:
            return frozenset()
        heads = frozenset({"HEAD", "packed-refs", "index", *(name.partition("/")[0] for name in _MEANT)})
        found = [
            spot_at(own, heads),
            spot_at(common, heads),
            spot_at(common / "refs"),
            spot_at(common / "reftable"),
        ]
        return frozenset(spot for spot in found if spot is not None)

    def _where(self) -> tuple[pathlib.Path, str]:
        """The work tree, and the path of the catalog in it."""
        top = work_tree(self._path)
        if top is None:
            raise Unreadable(
                f"cannot follow commits: {self._path} is in no git work tree", help="--watch files"
            )
        below = pathlib.Path(os.path.realpath(self._path)).relative_to(top).as_posix()
        return top, "" if below == "." else below

    def _meant(self, top: pathlib.Path) -> str:
        """The ref to read: in the middle of a rebase or a bisection, the branch that it began on."""
        if self._ref != "HEAD":
            return self._ref
        own, _ = git_directories(top)
        for name in _MEANT:
            try:
                branch = read_regular(own / name).decode(errors="replace").strip()
            except OSError:
                continue
            if branch and branch != "detached HEAD":
                return branch
        return self._ref


def files_of(top: pathlib.Path, tree: str, below: str) -> Mapping[str, bytes]:
    """The YAML files of a tree that stands at `below`: that of a merge which nobody made yet, say. Raises Unreadable."""
    with asked(top) as objects:
        listed = _Walk(objects, {}).files(tree, below)
        blobs = _blobs(objects, listed, {})
        return {name: blobs[blob] for name, blob in listed.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit says: its tree, those before it as people abbreviate them, who wrote it, its first line."""

    tree: str
    parents: tuple[str, ...]
    who: str
    message: str

    @classmethod
    def of(cls, data: bytes) -> "_Commit":
        """The commit in the bytes that git keeps of it."""
        head, _, message = data.decode(errors="surrogateescape").partition("\n\n")
        said = [line.partition(" ")[::2] for line in head.splitlines()]
        author = next((value for key, value in said if key == "author"), "")
        return cls(
            next(value for key, value in said if key == "tree"),
            tuple(value[:12] for key, value in said if key == "parent"),
            safe(author.partition(" <")[0]),
            safe(message.partition("\n")[0]),
        )


class _Walk:
    """Finds the catalog's files in trees, and asks git only for trees that are not among `known`."""

    def __init__(self, objects: Objects, known: Mapping[str, tuple[Entry, ...]]) -> None:
        self._objects, self._known = objects, known
        self.seen: dict[str, tuple[Entry, ...]] = {}

    def find(self, tree: str, below: str) -> str:
        """The tree at the path `below` of `tree`; empty where there is none."""
        for part in filter(None, below.split("/")):
            entries = self._entries(tree, below)
            found = [entry.object for entry in entries if (entry.name, entry.mode) == (part, DIRECTORY)]
            if not found:
                return ""
            tree = found[0]
        return tree

    def files(self, tree: str, below: str) -> dict[str, str]:
        """Name → blob of each YAML file, by name. What is no plain file raises Unreadable."""
        found: dict[str, str] = {}
        waiting, met = [(tree, f"{below}/" if below else "")], 0
        while waiting:
            tree, prefix = waiting.pop()
            entries = self._entries(tree, prefix)
            met += 1 + len(entries)
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.mode == DIRECTORY:
                    waiting.append((entry.object, f"{prefix}{entry.name}/"))
                elif entry.mode == _SUBMODULE or entry.name.lower().endswith((".yaml", ".yml")):
                    name = prefix + entry.name
                    if refused := _refusal(entry.mode, name):
                        raise _unreadable(name, refused)
                    found[name] = entry.object
            if len(found) > MAX_FILES or met > _MOST_ENTRIES:
                raise Unreadable(f"cannot read {below or 'the catalog'}: this is too much for a catalog")
        return dict(sorted(found.items()))

    def _entries(self, tree: str, where: str) -> tuple[Entry, ...]:
        entries = self.seen.get(tree) or self._known.get(tree) or self._objects.tree(tree, MAX_TOTAL)
        if entries is None:
            raise _unreadable(where or "the top", _LOST)
        self.seen[tree] = entries
        return entries


_MOST_ENTRIES = 20 * MAX_FILES
"""Of all trees together: a catalog has other files beside it, and some repositories are made to be endless."""

_LOST = "the repository has lost it (git fsck)"


def _blobs(objects: Objects, listed: Mapping[str, str], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The bytes of the blobs that are `listed` under their names. Raises Unreadable."""
    blobs = {blob: known[blob] for blob in listed.values() if blob in known}
    missing = {blob: name for name, blob in listed.items() if blob not in blobs}
    total = sum(map(len, blobs.values()))
    for header, data in objects.each(list(missing), MAX_BYTES):
        name = missing[header.asked]
        if header.kind != "blob":
            raise _unreadable(name, _LOST)
        if header.size > MAX_BYTES:
            raise _unreadable(
                name, f"it has {show_memory(header.size)}, {show_memory(MAX_BYTES)} are the most"
            )
        blobs[header.asked] = data
        total += header.size
        if total > MAX_TOTAL:
            raise Unreadable(f"cannot read {safe(name)}: {len(listed)} files are too much for a catalog")
    return blobs


def _refusal(mode: str, name: str) -> str:
    """Why an entry of a tree cannot be read as a file; nothing where it can."""
    if mode == _SUBMODULE:
        return "a submodule is not followed"
    if mode not in _REGULAR:
        return "a link is not followed in a commit"
    return "" if name.isprintable() else "this file name cannot be printed"


def _unreadable(name: str, why: str) -> Unreadable:
    return Unreadable(f"cannot read {safe(name)} of the commit: {why}")


def _status(top: pathlib.Path, *arguments: str) -> str:
    """What `git status` says. Raises Unreadable with git's own words."""
    call = command(top, "status", *arguments)
    try:
        done = subprocess.run(call, capture_output=True, timeout=PATIENCE, check=False, env=git_environment())
    except subprocess.TimeoutExpired:
        raise Unreadable(f"cannot read {top}: git status took longer than {PATIENCE:.0f}s") from None
    except OSError as error:
        raise cannot_run(top, error) from error
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise Unreadable(f"cannot read {top}: git status: {safe(words[:300])}")
    return done.stdout.decode(errors="surrogateescape")
