"""How a process is known to be ours: by what we put into its environment, its cgroup and its session.

`agent.process` puts the mark on, `agent.adopt` and `agent.sweep` look for it. A process without our
mark is never signalled, whatever it holds.
"""

import dataclasses
import secrets

from llmgw.agent import procfs
from llmgw.agent.kernel import LINUX, Kernel, live
from llmgw.fleet.shard import ShardKey

NODE, SHARD, COOKIE, LEADER = "LLMGW_NODE", "LLMGW_SHARD", "LLMGW_COOKIE", "LLMGW_LEADER"
CARDS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """One launch of one shard. `pid` and `ticks` are its leader's, in boot `boot`; 0 = not forked yet.

    `cgroup` is its path in the v2 hierarchy, or empty.
    """

    cookie: str
    cgroup: str = ""
    boot: str = ""
    pid: int = 0
    ticks: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Marked:
    """A live process that carries our node's mark. `shard` is `replica:rank` as its environment says.

    `leader` is the pid of its launch's first process, 0 where its environment does not say it (yet).
    `cards` are those that it was given, by UUID; None = it does not say them.
    """

    pid: int
    ticks: int
    session: int
    shard: str
    cookie: str
    cgroup: str
    leader: int = 0
    cards: tuple[str, ...] | None = None


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
    return Marked(pid, after.ticks, after.session, env.get(SHARD, ""), cookie, group, known, cards)


def _cards(said: str) -> tuple[str, ...] | None:
    """The cards that an environment names. A number means another card to everybody who sees other ones: None."""
    names = tuple(name.strip() for name in said.split(",") if name.strip())
    return None if any(name.isdigit() for name in names) else names


def session(identity: Identity, kernel: Kernel = LINUX) -> int:
    """The session of a launch, or 0 where its number can no longer be trusted.

    It counts only while the leader's entry stands in /proc with our ticks, as a zombie too: later the
    number may belong to a stranger. One that was born in the same tick shows by its environment.
    """
    leader = kernel.stat(identity.pid) if identity.pid else None
    if leader is None or leader.ticks != identity.ticks:
        return 0
    env = kernel.environ(identity.pid)  # of a zombie, or of who wiped it, it is empty
    return 0 if env and env.get(COOKIE) != identity.cookie else identity.pid


def members(identity: Identity, kernel: Kernel = LINUX) -> tuple[procfs.Stat, ...]:
    """The live processes of one launch: in its cgroup, with its cookie, or in its leader's session."""
    if identity.boot and identity.boot != kernel.boot_id():
        return ()
    own = session(identity, kernel)
    stats = (live(kernel, pid) for pid in kernel.pids())
    return tuple(stat for stat in stats if stat is not None and belongs(stat, identity, own, kernel))


def belongs(stat: procfs.Stat, identity: Identity, session: int, kernel: Kernel = LINUX) -> bool:
    """Whether a process is of this launch; `session` 0 = no session of its own is known."""
    if stat.pid == kernel.me():
        return False
    if session and stat.session == session:
        return True
    if identity.cgroup and f"{kernel.cgroup(stat.pid)}/".startswith(f"{identity.cgroup}/"):
        return True
    return kernel.environ(stat.pid).get(COOKIE) == identity.cookie
