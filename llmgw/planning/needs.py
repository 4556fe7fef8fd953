"""What each model needs, kept from pass to pass; models that need nothing are not in it.

`reconcile` asks `rollout` again for the models of which something changed, and takes the pending ones
from here in the order of their size.
"""

import bisect
import dataclasses
from collections.abc import Collection

from llmgw.fleet.replica import Replica
from llmgw.planning.desired import Marks
from llmgw.planning.placement import NoFit, Request
from llmgw.planning.wants import SizeKey


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What is to be done about one model.

    `create` replicas may be placed (one a pass does): `have` of `count` are there, or there is another
    `reason`. `drain` and `undrain` are (replica, because). `swap` is the old replica that may go first if the new one finds no room.
    `ripe_at` is when a new one will have proved itself, where an old one waits for that. `old` are those that
    serve until their successors have, unless these fail to start. `lost` says where one was that went with its node.
    """

    create: int = 0
    have: int = 0
    count: int = 0
    reason: str = ""
    drain: tuple[tuple[str, str], ...] = ()
    undrain: tuple[tuple[str, str], ...] = ()
    swap: str = ""
    ripe_at: float | None = None
    old: tuple[str, ...] = ()
    lost: str = ""

    @property
    def surges(self) -> bool:
        """Whether successors come up beside what serves: old ones will leave without a gap."""
        return bool(self.old) and self.have + len(self.old) > self.count

    @property
    def because(self) -> str:
        lost = f", {self.lost}" if self.lost else ""
        return self.reason or f"{self.have} of {self.count} replicas{lost}"

    @property
    def nothing(self) -> bool:
        """Whether neither this pass nor time has anything to do."""
        return not (self.create or self.drain or self.undrain or self.ripe_at is not None or self.old)


def stays(replica: Replica, generations: Collection[str], marks: Marks) -> bool:
    """Whether it is what the catalog asks for, where nobody wants it gone; otherwise a successor takes over."""
    if replica.generation not in generations:
        return False
    return not marks.draining or not any(peer.node in marks.draining for peer in replica.spec.peers)


@dataclasses.dataclass(frozen=True, slots=True)
class Unplaced:
    """A replica that is wanted and fits nowhere: every node's every reason, for the first profile.

    `short` says of a gang that some nodes have none, and are too few.
    `stay` are those that people want moved and that serve on because of it, where nothing else is missing.
    """

    model: str
    profile: str
    because: str
    reasons: tuple[NoFit, ...]
    stay: tuple[str, ...] = ()
    short: str = ""


@dataclasses.dataclass(slots=True)
class Search:
    """How one model looked for a place: its requests, and the state of the stock in which none was found.

    `full_at` is `Stock.grown`; `stuck_at` is that, and the old replica that could as well have stayed.
    """

    requests: tuple[Request, ...]
    full_at: int = -1
    stuck_at: tuple[int, str] = (-1, "")


class Needs:
    """Needs by model. `pending` = models with replicas to place, biggest first."""

    def __init__(self) -> None:
        self.of: dict[str, Need] = {}
        self.pending: list[SizeKey] = []
        self.acting: set[str] = set()
        self.ripening: set[str] = set()
        self.surging: set[str] = set()
        self.searches: dict[str, Search] = {}
        self._queued: dict[str, SizeKey] = {}

    def put(self, model: str, need: Need, size_key: SizeKey | None) -> None:
        """What `model` needs now. `size_key` is None where it is not in the catalog."""
        self._drop(model)
        if need.nothing:
            self.searches.pop(model, None)
            return
        self.of[model] = need
        if need.create and size_key is not None:
            bisect.insort(self.pending, size_key)
            self._queued[model] = size_key
        if need.drain or need.undrain:
            self.acting.add(model)
        if need.ripe_at is not None:
            self.ripening.add(model)
        if need.surges:
            self.surging.add(model)

    def is_pending(self, model: str) -> bool:
        """Whether it has replicas to place."""
        return model in self._queued

    def _drop(self, model: str) -> None:
        self.of.pop(model, None)
        self.acting.discard(model)
        self.ripening.discard(model)
        self.surging.discard(model)
        if model in self._queued:
            del self.pending[bisect.bisect_left(self.pending, self._queued.pop(model))]
