"""What a starting agent does about what it finds: records × live processes → adopt, forget, sweep, end.

Called once by `agent.supervisor`, which lists the processes before it reads the records: what was
started in between then looks unmarked, not undescribed.
"""

import dataclasses
from collections.abc import Iterable

from llmgw.agent.marks import Identity, Marked, shard_name
from llmgw.agent.records import Found, Record


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """`adopt`: records whose leader lives, identities made whole. `sweep`: their leader died, others live.

    `forget`: nothing of it lives. `orphans`: marked as ours and described by nothing, by cookie: they
    end once the control plane has been heard, and not before. `left`: what only a newer release
    describes, by cookie: it is left alone.
    """

    adopt: tuple[Record, ...] = ()
    sweep: tuple[Record, ...] = ()
    forget: tuple[Record, ...] = ()
    orphans: tuple[Identity, ...] = ()
    left: tuple[str, ...] = ()


def decide(found: Found, marked: Iterable[Marked], boot: str) -> Decision:
    """Sort what the disk says by what lives. `boot` is the id of this boot."""
    by_cookie: dict[str, list[Marked]] = {}
    for mark in marked:
        by_cookie.setdefault(mark.cookie, []).append(mark)
    adopt: list[Record] = []
    sweep: list[Record] = []
    forget: list[Record] = []
    for record in found.records:
        tree = by_cookie.pop(record.identity.cookie, [])
        leader = _leader(record, tree, boot)
        if leader is not None:
            adopt.append(_identified(record, leader, boot))
        elif tree:
            sweep.append(record)
        else:
            forget.append(record)
    left = tuple(
        cookie
        for cookie, tree in by_cookie.items()
        if found.foreign & {cookie, *(mark.shard for mark in tree)}
    )
    orphans = tuple(_orphan(tree, boot) for cookie, tree in by_cookie.items() if cookie not in left)
    return Decision(tuple(adopt), tuple(sweep), tuple(forget), orphans, left)


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
    identity = dataclasses.replace(record.identity, boot=boot, pid=leader.pid, ticks=leader.ticks)
    return dataclasses.replace(record, identity=identity, state="running")


def _orphan(tree: list[Marked], boot: str) -> Identity:
    first = min(tree, key=lambda mark: mark.ticks)
    group = first.cgroup if first.cgroup.endswith(f"/{first.cookie}") else ""
    return Identity(first.cookie, group, boot, first.pid, first.ticks)
