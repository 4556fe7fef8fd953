"""A machine with an agent, as it described itself.

An absent value (`None`) is "not said": it excludes nothing and deletes nothing.
"""

import dataclasses

from llmgw.kit.units import show_memory


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """A process on a card that is not ours. `used` in bytes, 0 = not told; `name` is what it calls itself, if it does.

    `bars` = the card takes nothing as long as it is there: it may want all of it.
    """

    pid: int
    used: int = 0
    name: str = ""
    bars: bool = False

    def __str__(self) -> str:
        """`20 GiB held by pid 4711 (python3)`."""
        amount = f"{show_memory(self.used)} held" if self.used else "held"
        return f"{amount} by pid {self.pid}" + (f" ({self.name})" if self.name else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """One card or MIG slice. Memory in bytes; `foreign` = in use, and not by processes of ours.

    `holders` are the strangers on it that have most of that; there may be more, and some that nobody sees.
    """

    uuid: str
    name: str
    memory_total: int = 0
    memory_used: int | None = None
    foreign: int = 0
    healthy: bool = True
    said: str = ""
    holders: tuple[Holder, ...] = ()

    def takes(self, share: float) -> bool:
        """Whether so much of its memory is free beside what is foreign; what nobody knows of one excludes nothing."""
        return not self.memory_total or self.memory_total - self.foreign >= self.memory_total * share

    @property
    def strangers(self) -> str:
        """Who holds how much of what is foreign, in words; empty = nobody."""
        if not self.holders:
            theirs = f"{show_memory(self.foreign)} held by processes that are not llmgw's"
            return theirs if self.foreign else ""
        told = [str(holder) for holder in self.holders]
        rest = self.foreign - sum(holder.used for holder in self.holders)
        if rest > 0 and all(holder.used for holder in self.holders):
            told.append(f"{show_memory(rest)} held by others")
        return f"{', '.join(told)}, not llmgw's"


@dataclasses.dataclass(frozen=True, slots=True)
class InstalledEngine:
    """An engine found by resolving paths. `version` is empty where nothing tells it for free.

    `works` and `checked` are what its own version command did and said when somebody ran it on purpose; None =
    nobody did.
    """

    name: str
    version: str = ""
    path: str = ""
    works: bool | None = None
    checked: str = ""

    @property
    def known_version(self) -> str:
        """Its version, told for free or by its own version command; empty where nobody knows it."""
        return self.version or (self.checked if self.works else "")


@dataclasses.dataclass(frozen=True, slots=True)
class CachedWeights:
    """One entry of the node's cache, read back from its disk.

    `whole` = the manifest is there and every size matches. `modified` is wall-clock seconds, used
    only to recognise the entry again. `claimed` is what a fetch that is not over has of the disk, ahead of
    the bytes that came; 0 = not said.
    """

    cache_name: str
    source: str
    size: int
    modified: float = 0.0
    whole: bool = True
    claimed: int = 0

    @property
    def on_disk(self) -> int:
        """Bytes of the disk that are not free because of it."""
        return max(self.size, self.claimed)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node says of itself when it registers. Sizes in bytes; `ports` is [first, last]."""

    id: str
    name: str
    instance: str = ""
    address: str = "127.0.0.1"
    build: str = ""
    protocol: int = 1
    gpus: tuple[Gpu, ...] | None = None
    cpu_cores: float | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    disk_free: int | None = None
    engines: tuple[InstalledEngine, ...] | None = None
    weights: tuple[CachedWeights, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[int, int] = (20000, 20999)
    ports_taken: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def holds(self, cache_name: str) -> bool:
        """Whether the node has these weights whole."""
        return any(entry.whole and entry.cache_name == cache_name for entry in self.weights or ())

    def begun(self, cache_name: str) -> CachedWeights | None:
        """What is here of these weights while they are not whole; of two such entries the lesser."""
        return min(
            (each for each in self.weights or () if each.cache_name == cache_name and not each.whole),
            key=lambda each: (each.on_disk, each.size),
            default=None,
        )

    def takes(self, cache_name: str, size: int) -> int:
        """Bytes of free disk that weights of `size` will take here: what their fetch has claimed is not free."""
        begun = self.begun(cache_name)
        return max(0, size - begun.on_disk) if begun is not None else size
