"""The catalog as commits have it: read from git's objects, never from the work tree.

Used by `watch`, from a thread; the twin of `trees.Directory`. Nothing is checked out, nothing in the
repository is written: plumbing only, without optional locks. A tree is read once: blobs that were seen
are kept by their names.
"""

import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping

from llmgw.catalog.builder import MAX_BYTES
from llmgw.catalog.load import MAX_FILES, MAX_TOTAL
from llmgw.control.trees import Spot, Tree, Unreadable, git_directories, spot_at, work_tree
from llmgw.kit.text import safe
from llmgw.kit.units import show_memory

PATIENCE = 30.0
"""Seconds for one call of git."""

_MEANT = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""While one of these is there, HEAD moves through commits that nobody means; it names the branch that is."""

_REGULAR = ("100644", "100755", "100664")
_SUBMODULE = "160000"
_SHOWN = 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Commit:
    """A commit, its tree `below` a directory, who wrote it and the first line of what they said."""

    commit: str = ""
    below: str = ""
    tree: str = ""
    who: str = ""
    message: str = ""


class Commits:
    """The YAML files below `path` in the commit that `ref` names."""

    def __init__(self, path: pathlib.Path, ref: str = "HEAD") -> None:
        self._path, self._ref = path, ref
        self._blobs: dict[str, bytes] = {}
        self._last = _Commit()

    @property
    def said(self) -> str:
        return f"commits of {self._ref} below {self._path}"

    def look(self) -> Tree:
        """The commit as it is now. Raises Unreadable."""
        top, below = self._where()
        ref = self._meant(top)
        commit = self._name(top, f"{ref}^{{commit}}", f"there is no commit {ref}")
        if (commit, below) != (self._last.commit, self._last.below):
            tree = self._name(top, f"{commit}:{below}", f"commit {commit[:12]} has no {below}/")
            self._last = _Commit(commit, below, tree, *_author(self._git(top, "cat-file", "commit", commit)))
        last = self._last
        return Tree(last.tree, "", commit[:12], last.who, last.message, self._dirty(top, below))

    def read(self, tree: Tree) -> Mapping[str, bytes]:
        """The files of `tree`, by their names in the repository. Raises Unreadable."""
        top, below = self._where()
        entries = list(_entries(self._git(top, "ls-tree", "-r", "-z", "-l", tree.mark), below))
        if len(entries) > MAX_FILES or sum(entry.size for entry in entries) > MAX_TOTAL:
            raise Unreadable(f"cannot read {tree.commit}: {len(entries)} files are too much for a catalog")
        wanted = {entry.blob for entry in entries}
        kept = {blob: data for blob, data in self._blobs.items() if blob in wanted}
        missing = sorted(wanted - kept.keys())
        if missing:
            asked = "\n".join(missing).encode()
            kept.update(_blobs(self._git_bytes(top, "cat-file", "--batch", given=asked)))
        self._blobs = kept
        return {entry.name: kept[entry.blob] for entry in entries}

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
                branch = (own / name).read_text().strip()
            except OSError:
                continue
            if branch and branch != "detached HEAD":
                return branch
        return self._ref

    def _dirty(self, top: pathlib.Path, below: str) -> tuple[str, ...]:
        """Files of the catalog that stand otherwise than in HEAD, or in no commit at all."""
        said = self._git(
            top, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", below or "."
        )
        names = [safe(entry[3:]) for entry in said.split("\0") if entry.lower().endswith((".yaml", ".yml"))]
        return tuple(names[:_SHOWN])

    def _name(self, top: pathlib.Path, what: str, otherwise: str) -> str:
        """The object that `what` names."""
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", what)
        try:
            return self._git(top, *asked).strip()
        except _Refused as refused:
            if refused.words:
                raise
            raise Unreadable(
                f"cannot read the catalog: {otherwise}", help="nothing was changed by it"
            ) from refused

    def _git(self, top: pathlib.Path, *arguments: str) -> str:
        return self._git_bytes(top, *arguments).decode(errors="surrogateescape")

    def _git_bytes(self, top: pathlib.Path, *arguments: str, given: bytes = b"") -> bytes:
        """What one call of git's plumbing says. Raises Unreadable with git's own words."""
        command = ["git", "--no-optional-locks", "-C", str(top), *arguments]
        try:
            done = subprocess.run(
                command, input=given, capture_output=True, timeout=PATIENCE, check=False, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise Unreadable(
                f"cannot read {top}: git {arguments[0]} took longer than {PATIENCE:.0f}s"
            ) from None
        except OSError as error:
            raise Unreadable(
                f"cannot read {top}: git cannot be run: {error.strerror}", help="install git"
            ) from error
        if done.returncode:
            words = " ".join(done.stderr.decode(errors="replace").split())
            raise _Refused(f"cannot read {top}: git {arguments[0]}: {safe(words[:300])}", words)
        return done.stdout


class _Refused(Unreadable):
    """Git ended with an error; `words` are its own, empty where it was asked to be quiet."""

    def __init__(self, said: str, words: str) -> None:
        super().__init__(said, help="nothing was changed by it")
        self.words = words


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One YAML file of a tree. `size` in bytes."""

    name: str
    blob: str
    size: int


def _entries(listed: str, below: str) -> Iterator[_Entry]:
    """The catalog's files among the lines of `ls-tree -r -z -l`. What is no plain file raises Unreadable."""
    for line in filter(None, listed.split("\0")):
        about, path = line.split("\t", 1)
        mode, _, blob, size = about.split()
        name = f"{below}/{path}" if below else path
        if any(part.startswith(".") for part in path.split("/")):
            continue
        if mode == _SUBMODULE or path.lower().endswith((".yaml", ".yml")):
            if refused := _refusal(mode, name, size):
                raise Unreadable(f"cannot read {safe(name)} of the commit: {refused}")
            yield _Entry(name, blob, int(size))


def _refusal(mode: str, name: str, size: str) -> str:
    """Why an entry of a tree cannot be read as a file; nothing where it can."""
    if mode == _SUBMODULE:
        return "a submodule is not followed"
    if mode not in _REGULAR:
        return "a link is not followed in a commit"
    if not name.isprintable():
        return "this file name cannot be printed"
    if not size.isdecimal():
        return "the repository has lost it (git fsck)"
    if int(size) > MAX_BYTES:
        return f"it has {show_memory(int(size))}, {show_memory(MAX_BYTES)} are the most"
    return ""


def _blobs(said: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each object that `cat-file --batch` printed."""
    at = 0
    while at < len(said):
        end = said.index(b"\n", at)
        name, kind, *rest = said[at:end].decode().split()
        if kind != "blob":
            raise Unreadable(f"cannot read blob {name[:12]}: {kind}")
        size = int(rest[0])
        yield name, said[end + 1 : end + 1 + size]
        at = end + 2 + size


def _author(commit: str) -> tuple[str, str]:
    """Who wrote a commit, and the first line of its message."""
    head, _, message = commit.partition("\n\n")
    author = next((line for line in head.splitlines() if line.startswith("author ")), "")
    return safe(author[7:].partition(" <")[0]), safe(message.partition("\n")[0])


def _environment() -> dict[str, str]:
    """Ours, without what would point git elsewhere (a hook's, say), and with its words in English."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, "LC_ALL": "C"}
