"""Who else is on a card, and what of its memory is not ours. Used by `agent.gpus`.

Free is what is measured, not what we booked: memory that the driver charges to no process it lists (of another
namespace, of a context that leaked) is no more free than a stranger's. What a driver does not tell is counted against
nobody that it names.
"""

import pathlib
from collections.abc import Collection, Sequence

from llmgw.agent import procfs
from llmgw.agent.cards import Card
from llmgw.engines.registry import ADAPTERS
from llmgw.fleet.node import Holder
from llmgw.kit.text import safe

IDLE = 256 << 20
"""Bytes in use on a card that nobody is charged for and that stand for nobody: its driver's own."""

LITTLE = 1 << 30
"""Bytes with which strangers that compute leave a card usable: a monitor's context, an editor's."""

MOST = 8
"""Holders that are told of one card, those with most memory."""

_NAME = 64
"""Characters of a process's name."""
_BEGINNING = 3
"""Words of a command line in which an engine is named: `python -m vllm…`."""
_TITLES = ("vllm::", "sglang::")
"""How engines' children call themselves."""
_MODULES = tuple(name for adapter in ADAPTERS.values() for name in (adapter.name, *adapter.programs))


def foreign(card: Card, ours: Collection[int]) -> int:
    """Bytes in use on `card` that are not charged to `ours`; 0 = none."""
    used = max(0, (card.used or 0) - card.reserved)
    charges = (*(card.charged or ()), *card.drawn)
    theirs = [amount for pid, amount in charges if pid not in ours]
    own = [amount for pid, amount in charges if pid in ours]
    listed = sum(theirs)
    if not all(own):  # what is ours cannot be told from the rest
        return min(listed, card.total)
    rest = used - sum(own)
    unseen = rest - listed >= IDLE or not all(theirs)
    return min(max(listed, rest) if unseen else listed, card.total)


def holders(card: Card, ours: Collection[int], foreign: int) -> tuple[Holder, ...]:
    """Strangers on `card`, those with most of its memory first. `foreign` as told by that function. Raises OSError."""
    computing = [(pid, amount) for pid, amount in card.charged or () if pid not in ours]
    known = sum(amount for _, amount in computing)
    much = (known if all(amount for _, amount in computing) else foreign) > LITTLE
    found = [_holder(pid, amount, much=much) for pid, amount in computing]
    found += [_holder(pid, amount, much=False) for pid, amount in card.drawn if pid not in ours]
    return tuple(sorted(found, key=lambda each: (-each.bars, -each.used, each.pid))[:MOST])


def _holder(pid: int, amount: int, *, much: bool) -> Holder:
    name, words = procfs.name(pid), procfs.command(pid)
    return Holder(pid, amount, safe(name)[:_NAME], bars=much or _is_engine(name, words))


def _is_engine(name: str, words: Sequence[str]) -> bool:
    """Whether a process calls itself an engine, by its title, its program or the module that it runs."""
    said = (name, *words[:_BEGINNING])
    return any(word.lower().startswith(_TITLES) or _names_engine(word) for word in said)


def _names_engine(word: str) -> bool:
    return pathlib.PurePath(word).name.partition(".")[0] in _MODULES
