"""How a process is known to be ours: by what we put into its environment, its cgroup and its session.

`agent.process` puts the mark on, `agent.adopt` and `agent.sweep` look for it. A process without our
mark is never signalled, whatever it holds. A wrapper that ends in `exec env -i` leaves no cookie: that its
leader is the very process that was launched is then the mark, for it and for the session that it leads.
"""

import dataclasses
import secrets
from collections.abc import Collection, Iterable

from llmgw.agent import procfs
from llmgw.agent.kernel import LINUX, Kernel, live
from llmgw.fleet.shard import ShardKey

NODE, SHARD, COOKIE, LEADER = "LLMGW_NODE", "LLMGW_SHARD", "LLMGW_COOKIE", "LLMGW_LEADER"
CARDS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """One launch of one shard. `pid` and `ticks` are its leader's, in boot `boot`; 0 = not forked yet.

    `cgroup` is its path in the v2 hierarchy, or empty. `inode` is its leader's as `Kernel.inode` says it; 0 = that
    was not known, and its ticks must do.
    """

    cookie: str
    cgroup: str = ""
    boot: str = ""
    pid: int = 0
    ticks: int = 0
    inode: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Marked:
    """A live process that carries our node's mark. `shard` is `replica:rank` as its environment says.

    `leader` is the pid of its launch's first process, 0 where its environment does not say it (yet).
    `cards` are those that it was given, by UUID; None = it does not say them. `inode` is as `Kernel.inode` says it.
    """

    pid: int
    ticks: int
    session: int
    shard: str
    cookie: str
    cgroup: str
    leader: int = 0
    cards: tuple[str, ...] | None = None
    inode: int = 0


def shard_name(key: ShardKey) -> str:
    """A shard in an environment: `alpha/x7qf:0`."""
    return f"{key[0]}:{key[1]}"


def group_base(node: str) -> str:
    """The directory of this node's groups; the group of a launch in it is named by its cookie."""
    return f"llmgw-{node}"


def new_cookie() -> str:
    """128 bits that nobody guesses and no other launch has."""
    return secrets.token_hex(16)


def environment(node: str, key: ShardKey, cookie: str) -> dict[str, str]:
    """The mark. SPT_NOENV: engines whose children retitle themselves must not wipe it."""
    return {NODE: node, SHARD: shard_name(key), COOKIE: cookie, "SPT_NOENV": "1"}


def scan(node: str, kernel: Kernel = LINUX) -> tuple[Marked, ...]:
    """Every live process of this machine that carries the mark of `node`."""
    return tuple(mark for pid in kernel.pids() if (mark := _mark(pid, node, kernel)) is not None)


def _mark(pid: int, node: str, kernel: Kernel) -> Marked | None:
    before, env, group = live(kernel, pid), kernel.environ(pid), kernel.cgroup(pid)
    after = live(kernel, pid)
    if before is None or after is None or before.ticks != after.ticks:
        return None
    # Its group tells as much as its environment, which some engines' children wipe.
    ours = group.partition(f"/{group_base(node)}/")[2].partition("/")[0]
    cookie = env.get(COOKIE, "") if env.get(NODE) == node else ours
    if not cookie or pid == kernel.me():
        return None
    leader = env.get(LEADER, "")
    known = int(leader) if leader.isascii() and leader.isdigit() else 0
    cards = _cards(env.get(CARDS, "")) if env.get(NODE) == node else None
    inode = _inode(after, kernel)
    return Marked(pid, after.ticks, after.session, env.get(SHARD, ""), cookie, group, known, cards, inode)


def _inode(stat: procfs.Stat, kernel: Kernel) -> int:
    """As `Kernel.inode`, of a process that was just looked at; 0 where it cannot be held any more."""
    try:
        handle = kernel.hold(stat.pid)
    except OSError:
        return 0
    try:
        now = kernel.stat(stat.pid)  # after the handle was opened: that is this process's
        return kernel.inode(handle) if now is not None and now.ticks == stat.ticks else 0
    finally:
        kernel.let_go(handle)


def _held(pid: int, kernel: Kernel) -> int | None:
    """A handle of `pid`, None where there is no such process. Raises OSError where we lack something."""
    try:
        return kernel.hold(pid)
    except OSError as error:
        if error.errno in procfs.LACKING:
            raise
        return None


def _cards(said: str) -> tuple[str, ...] | None:
    """The cards that an environment names. A number means another card to everybody who sees other ones: None."""
    names = tuple(name.strip() for name in said.split(",") if name.strip())
    return None if any(name.isdigit() for name in names) else names


def leader(identity: Identity, kernel: Kernel = LINUX) -> procfs.Stat | None:
    """The process that a launch began with as it stands in /proc, a zombie too; None where it is not there any more.

    What its environment says is its own business: it may have been cleared. Raises OSError.
    """
    handle = _held(identity.pid, kernel) if identity.pid else None
    if handle is None:
        return None
    try:
        return behind(handle, identity, kernel)
    finally:
        kernel.let_go(handle)


def behind(handle: int, identity: Identity, kernel: Kernel = LINUX) -> procfs.Stat | None:
    """As `leader`, of a process that is held already. Raises OSError."""
    found = kernel.stat(identity.pid)
    if found is None or found.ticks != identity.ticks:
        return None
    if identity.inode and kernel.inode(handle) != identity.inode:
        return None  # its pid was given away, and taken in the very same tick
    said = kernel.environ(identity.pid).get(COOKIE, identity.cookie)
    return found if said == identity.cookie else None


def alive(identities: Iterable[Identity], kernel: Kernel = LINUX) -> dict[Identity, bool]:
    """The launches of which something lives by their leaders: True = that itself, False = others of its session.

    Of one whose leader is gone for good this cannot be known. Raises OSError.
    """
    boot, found = kernel.boot_id(), dict[Identity, bool]()
    for identity in identities:
        first = leader(identity, kernel) if identity.boot == boot else None
        if first is not None and (not first.dead or kin((identity,), kernel)):
            found[identity] = not first.dead
    return found


def session(identity: Identity, kernel: Kernel = LINUX) -> int:
    """The session of a launch, or 0 where its number can no longer be trusted.

    It counts only while the leader's entry stands in /proc, as a zombie too: later the number may belong to a
    stranger.
    """
    return identity.pid if leader(identity, kernel) is not None else 0


def kin(identities: Iterable[Identity], kernel: Kernel = LINUX) -> frozenset[procfs.Stat]:
    """The live processes in the sessions of these launches. Raises OSError."""
    own = {number for identity in identities if (number := session(identity, kernel))}
    return in_sessions(own, kernel) if own else frozenset()


def in_sessions(own: Collection[int], kernel: Kernel = LINUX) -> frozenset[procfs.Stat]:
    """The live processes in these sessions. Raises OSError."""
    stats = (live(kernel, pid) for pid in kernel.pids())
    return frozenset(stat for stat in stats if stat is not None and stat.session in own)


def members(identity: Identity, kernel: Kernel = LINUX, own: int | None = None) -> tuple[procfs.Stat, ...]:
    """The live processes of one launch: in its cgroup, with its cookie, or in the session `own` (None = its leader's)."""
    if identity.boot and identity.boot != kernel.boot_id():
        return ()
    number = session(identity, kernel) if own is None else own
    stats = (live(kernel, pid) for pid in kernel.pids())
    return tuple(stat for stat in stats if stat is not None and belongs(stat, identity, number, kernel))


def belongs(stat: procfs.Stat, identity: Identity, session: int, kernel: Kernel = LINUX) -> bool:
    """Whether a process is of this launch; `session` 0 = no session of its own is known."""
    if stat.pid == kernel.me():
        return False
    if session and stat.session == session:
        return True
    if identity.cgroup and f"{kernel.cgroup(stat.pid)}/".startswith(f"{identity.cgroup}/"):
        return True
    return kernel.environ(stat.pid).get(COOKIE) == identity.cookie
