"""The replicas there are, by model and by what rules ask of them: who ends, who comes up, who hangs on time.

Kept by `planning.board`, which says when a replica has to be derived again.
"""

import bisect
import math
from collections import Counter
from collections.abc import Callable, Mapping

from llmgw.fleet.expiry import Standing, Timers
from llmgw.fleet.replica import Phase, Replica, derive
from llmgw.fleet.shard import ShardKey, ShardSpec
from llmgw.fleet.world import Shard

Kind = tuple[str, Phase, bool]
"""(generation, phase, whether clients are sent to it)."""


def kind(replica: Replica) -> Kind:
    """As which one it is counted."""
    return replica.generation, replica.phase, replica.serves


class Roll:
    """Replicas by id. `by_model` holds sorted ids; `timed` the instants at which an order is due again.

    `ending` = failed or lost, `coming` = not up yet, `hanging` = time or evidence alone can change them.
    `tally` counts a model's replicas by what screens ask of each.
    """

    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}
        self.by_model: dict[str, list[str]] = {}
        self.tally: dict[str, Counter[Kind]] = {}
        self.ending: set[str] = set()
        self.coming: set[str] = set()
        self.hanging: set[str] = set()
        self.timed: dict[str, tuple[float, ...]] = {}
        self._clock = -math.inf

    def known(self, key: ShardKey) -> ShardSpec | None:
        """What this shard was when its replica was last derived."""
        replica = self.replicas.get(key[0])
        shard = replica.shards[key[1]] if replica is not None and key[1] < len(replica.shards) else None
        return shard.spec if shard is not None else None

    def derived(
        self,
        name: str,
        ranks: int | None,
        shards: Mapping[ShardKey, Shard],
        standings: Mapping[str, Standing],
        now: float,
        timers: Timers,
        *,
        green: Callable[[str], bool],
        called: Callable[[str], str],
    ) -> Replica | None:
        """The replica as it is now. `ranks` is how many it has, or None where that is as before; `green`
        tells whether its data plane proves that it lives, `called` a node's name.
        """
        if ranks is None:
            ranks = len(self.replicas[name].shards) if name in self.replicas else 0
        found = [shards.get((name, rank)) for rank in range(ranks)]
        present = [shard for shard in found if shard is not None]
        return derive(present, standings, green(name), now, timers, called) if present else None

    def put(self, name: str, new: Replica | None, now: float, timers: Timers) -> None:
        """It is `new` from now on, or gone."""
        old = self.replicas.get(name)
        if old is not None and (new is None or new.model != old.model):
            self._drop(name, old)
            old = None
        if new is None:
            return
        self.replicas[name] = new
        if old is None:
            bisect.insort(self.by_model.setdefault(new.model, []), name)
            self._count(new, 1)
        elif kind(old) != kind(new):
            self._count(old, -1)
            self._count(new, 1)
        phase = new.phase
        _keep(self.ending, name, phase in ("Failed", "Lost"))
        _keep(self.coming, name, phase in ("Fetching", "Starting"))
        _keep(self.hanging, name, new.hangs_on_time)
        if instants := _orders_due(new, now, timers):
            self.timed[name] = instants
        elif name in self.timed:
            del self.timed[name]

    def passed(self, now: float, timers: Timers) -> None:
        """Forget the instants that are over. After a rehearsal, whose clock ran ahead, some are to come again."""
        if now < self._clock:
            due = ((name, _orders_due(replica, now, timers)) for name, replica in self.replicas.items())
            self.timed = {name: instants for name, instants in due if instants}
        else:
            for name in [name for name, instants in self.timed.items() if max(instants) <= now]:
                del self.timed[name]
        self._clock = now

    def _drop(self, name: str, old: Replica) -> None:
        for group in (self.ending, self.coming, self.hanging):
            group.discard(name)
        self.timed.pop(name, None)
        self._count(old, -1)
        del self.replicas[name]
        names = self.by_model[old.model]
        del names[bisect.bisect_left(names, name)]
        if not names:
            del self.by_model[old.model], self.tally[old.model]

    def _count(self, replica: Replica, step: int) -> None:
        tally = self.tally.get(replica.model)
        if tally is None:
            tally = self.tally[replica.model] = Counter()
        counted = kind(replica)
        left = tally[counted] = tally.get(counted, 0) + step
        if not left:
            del tally[counted]


def _keep(group: set[str], name: str, belongs: bool) -> None:
    if belongs:
        group.add(name)
    else:
        group.discard(name)


def _orders_due(replica: Replica, now: float, timers: Timers) -> tuple[float, ...]:
    """The instants after now at which an order of this replica is sent again or given up."""
    instants: list[float] = []
    for shard in replica.shards:
        if shard is None or (shard.confirmed and not shard.ordered):
            continue
        if shard.ordered:
            instants.append(shard.ordered_at + timers.ack)
        if not shard.confirmed:
            instants += (shard.since + timers.ack, shard.since + 3 * timers.ack)
    return tuple(at for at in instants if at > now)
