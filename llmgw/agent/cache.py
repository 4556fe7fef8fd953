"""The node's cache as it is on the disk now: nothing is remembered, everything is looked up.

`agent.weights` asks it before and after a fetch; its listing goes into Register and Report, and
comes back in a Collect. A file or directory that llmgw did not make is no entry, whatever its name.
"""

import os
import pathlib
import re

from llmgw.agent import confine, manifest, space
from llmgw.agent.manifest import FILES, MANIFEST, Manifest, name_of
from llmgw.agent.partial import NOTE, TRASH, Note, discard, parse_note
from llmgw.catalog.sources import Source, cache_name
from llmgw.errors import Failed
from llmgw.fleet.node import CachedWeights

NAME = re.compile(r"[0-9a-f]{64}\Z")
_DIRECTORY_NAME = re.compile(r"(?P<name>[0-9a-f]{64})(?P<partial>\.partial)?\Z")
_TRASH = re.compile(re.escape(TRASH) + r"[0-9a-f]{64}(\.partial)?-[0-9a-f]{8}\Z")
_LARGEST = 64 * 2**20


class Cache:
    """One directory, opened once: what happens to its path later does not lead anywhere else."""

    def __init__(self, root: pathlib.Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root.resolve()
        self.fd = confine.open_root(self.root)

    def close(self) -> None:
        os.close(self.fd)

    def in_place(self) -> bool:
        """Whether the path still leads to the directory that was opened: not unmounted, not replaced."""
        try:
            return os.path.samestat(os.fstat(self.fd), self.root.stat())
        except OSError:
            return False

    def sweep(self) -> None:
        """Remove what a removal or a fetch that died left without a name. Called once, at start."""
        for child in self.root.iterdir():
            if _TRASH.match(child.name) and child.is_dir() and not child.is_symlink():
                discard(child)

    def whole(self, source: Source) -> Manifest | None:
        """The manifest of the entry of `source`, if every file is there at its size."""
        directory = self.root / cache_name(source)
        found = manifest.read(directory)
        if found is None or found.source != source.canonical or manifest.lacking(directory, found):
            return None
        return found

    def model_path(self, source: Source) -> pathlib.Path:
        """What an engine is given: the GGUF file (the first of a split one), else the directory.

        An entry that is one file is that file. Raises Failed where the weights are not whole.
        """
        if not source.fetched:
            return _operators(source)
        found = self.whole(source)
        if found is None:
            raise Failed(
                f"cannot use the weights of {shown(source)}: {self._why_not(source)}",
                help="stop and start the replica: they are fetched again",
            )
        files = self.root / cache_name(source) / FILES
        return files / chosen if (chosen := _entrance(found)) else files

    def list_entries(self) -> tuple[CachedWeights, ...]:
        """Every entry of ours, whole or not, by name. Sizes as counted on the disk now."""
        listed = []
        for name in sorted(os.listdir(self.fd)):
            match = _DIRECTORY_NAME.match(name)
            entry = self._entry(name, match["name"], bool(match["partial"])) if match else None
            if entry is not None:
                listed.append(entry)
        return tuple(listed)

    def _entry(self, directory: str, name: str, partial: bool) -> CachedWeights | None:
        try:
            with confine.opened_below(self.fd, directory) as fd:
                described = describe(fd)
                found = confine.walk(fd)
        except OSError:
            return None
        if described is None or name_of(described.source) != name:
            return None
        whole = isinstance(described, Manifest) and not manifest.lacking(self.root / directory, described)
        return CachedWeights(
            cache_name=name,
            source=described.source,
            size=sum(each.status.st_size for each in found),
            modified=max(each.status.st_mtime for each in found),
            whole=whole and not partial,
            claimed=sum(space.held(each.status) for each in found) if partial else 0,
        )

    def _why_not(self, source: Source) -> str:
        directory = self.root / cache_name(source)
        found = manifest.read(directory)
        return manifest.lacking(directory, found) if found else f"they are not in {self.root}"


def shown(source: Source) -> str:
    """The source for people: without its query, which may be a signature, and without the pin."""
    return source.canonical.partition("#")[0].partition("?")[0]


def describe(entry: int) -> Manifest | Note | None:
    """What the open directory says it is: whole by its manifest, or under way by its note."""
    for name, parse in ((MANIFEST, manifest.parse), (NOTE, parse_note)):
        try:
            return parse(confine.read_below(entry, name, _LARGEST))
        except OSError:
            continue
    return None


def _entrance(found: Manifest) -> str:
    names = sorted(record.name for record in found.files)
    if len(names) == 1:
        return names[0]
    ggufs = [name for name in names if name.endswith(".gguf")]
    return ggufs[0] if ggufs and not any(name.endswith("config.json") for name in names) else ""


def _operators(source: Source) -> pathlib.Path:
    path = pathlib.Path(source.canonical.removeprefix("file://"))
    if not path.exists():
        raise Failed(
            f"cannot use the weights of {source.canonical}: {path} is not on this node",
            help="put them there: llmgw never fetches a file:// source",
        )
    return path
