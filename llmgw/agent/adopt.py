"""What a starting agent does about what it finds: records × live processes → adopt, forget, sweep, end.

A launch is found by its mark, and by its record: the recorded leader is ours though its environment was cleared.

Called once by `agent.supervisor`, which lists the processes before it reads the records: what was
started in between then looks unmarked, not undescribed.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from llmgw.agent import core
from llmgw.agent.marks import Identity, Marked, shard_name
from llmgw.agent.records import Found, Record

NOBODY: Mapping[Identity, bool] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """`adopt`: records whose leader lives, identities made whole. `sweep`: their leader died, others live.

    `forget`: nothing of it lives. `orphans`: marked as ours and described by nothing, by cookie: they
    end once the control plane has been heard, and not before. `left`: what only a newer release
    describes: it is left alone. `cards` are those that the launches of these two name, by cookie; one
    that is not in it may hold any.
    """

    adopt: tuple[Record, ...] = ()
    sweep: tuple[Record, ...] = ()
    forget: tuple[Record, ...] = ()
    orphans: tuple[Identity, ...] = ()
    left: tuple[Identity, ...] = ()
    cards: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def undescribed(self) -> core.Undescribed:
        """What the core is told of what has no record."""
        return core.Undescribed(self._strays(self.orphans), self._strays(self.left))

    def _strays(self, launches: Iterable[Identity]) -> tuple[core.Stray, ...]:
        return tuple(core.Stray(each.cookie, each.pid, self.cards.get(each.cookie)) for each in launches)


def decide(
    found: Found, marked: Iterable[Marked], boot: str, alive: Mapping[Identity, bool] = NOBODY
) -> Decision:
    """Sort what the disk says by what lives. `boot` is the id of this boot, `alive` as `marks.alive` says it."""
    alive = dict(alive)
    by_cookie: dict[str, list[Marked]] = {}
    for mark in marked:
        by_cookie.setdefault(mark.cookie, []).append(mark)
    adopt: list[Record] = []
    sweep: list[Record] = []
    forget: list[Record] = []
    for record in sorted(found.records, key=lambda record: not _names(by_cookie, record)):
        tree = by_cookie.pop(record.identity.cookie, [])
        leader = _leader(record, tree, boot)
        unmarked = alive.pop(record.identity, None)  # one launch is taken over once
        if leader is not None:
            adopt.append(_identified(record, leader, boot))
        elif unmarked:
            adopt.append(record)
        elif tree or unmarked is not None:
            sweep.append(record)
        else:
            forget.append(record)
    # A record is forgotten by its shard's name: the file of who lives stays.
    taken = {record.spec.key for record in (*adopt, *sweep)}
    forget = [record for record in forget if record.spec.key not in taken]
    newer = {
        cookie
        for cookie, tree in by_cookie.items()
        if found.foreign & {cookie, *(mark.shard for mark in tree)}
    }
    orphans = tuple(_orphan(tree, boot) for cookie, tree in by_cookie.items() if cookie not in newer)
    left = tuple(_orphan(tree, boot) for cookie, tree in by_cookie.items() if cookie in newer)
    cards = {cookie: named for cookie, tree in by_cookie.items() if (named := _cards(tree)) is not None}
    return Decision(tuple(adopt), tuple(sweep), tuple(forget), orphans, left, cards)


def _names(by_cookie: Mapping[str, list[Marked]], record: Record) -> bool:
    """Whether what lives with the record's cookie says that it is this shard: of two that name it, it is that one's."""
    shard = shard_name(record.spec.key)
    return any(mark.shard == shard for mark in by_cookie.get(record.identity.cookie, ()))


def _leader(record: Record, tree: list[Marked], boot: str) -> Marked | None:
    if record.state == "running":
        wanted = (record.identity.boot, record.identity.pid, record.identity.ticks)
        return next((mark for mark in tree if (boot, mark.pid, mark.ticks) == wanted), None)
    # The agent died between fork and its second record: every child says who the first was. Before its
    # exec the first itself does not, and then it is alone with its session.
    said = {mark.leader for mark in tree} - {0}
    if said:
        return next((mark for mark in tree if mark.pid in said and mark.leader == mark.pid), None)
    leaders = [
        mark for mark in tree if mark.session == mark.pid and mark.shard == shard_name(record.spec.key)
    ]
    return min(leaders, key=lambda mark: mark.ticks, default=None)


def _identified(record: Record, leader: Marked, boot: str) -> Record:
    identity = dataclasses.replace(
        record.identity, boot=boot, pid=leader.pid, ticks=leader.ticks, inode=leader.inode
    )
    return dataclasses.replace(record, identity=identity, state="running")


def _orphan(tree: list[Marked], boot: str) -> Identity:
    first = min(tree, key=lambda mark: mark.ticks)
    group = first.cgroup if first.cgroup.endswith(f"/{first.cookie}") else ""
    return Identity(first.cookie, group, boot, first.pid, first.ticks, first.inode)


def _cards(tree: list[Marked]) -> tuple[str, ...] | None:
    """What the processes of a launch name; None where nobody names any and somebody cannot be read."""
    named = tuple(sorted({card for mark in tree for card in mark.cards or ()}))
    return named if named or all(mark.cards is not None for mark in tree) else None
