"""What an engine reads in a flag, in every spelling, and which arguments and variables a profile may not set.

Called by `checks`, and by `options` for the values that llmgw goes by. The names are data in `engine_facts`;
this module knows how a flag can be written: with `_` or `-`, negated, dotted, by a short form, or as a
beginning that the engine would complete.
"""

import fnmatch
import functools
import re
from collections.abc import Collection, Sequence

from llmgw.catalog.engine_facts import FACTS, RESERVED_ENV, SECRET_ENV, UNLESS_SWITCHED, EngineFacts

_SHORT = 64
"""Characters of a name that is remembered: one in a hostile file may be as long as the file."""


def canonical(flag: str) -> str:
    """The spelling that engines document: dashes, except in what follows a dot (a key inside a value)."""
    head, dot, inner = flag.partition(".")
    return head.replace("_", "-") + dot + inner


def whole(flag: str, engine: str) -> str:
    """`flag` by its own name where llmgw goes by its value, else as engines document it; a key inside it stays."""
    return (_short_whole if len(flag) <= _SHORT else _whole)(flag, engine)


def _whole(flag: str, engine: str) -> str:
    spelled, facts = canonical(flag.lstrip("-")), FACTS[engine]
    head, dot, inner = spelled.partition(".")
    if head in facts.heard:
        return facts.heard[head] + dot + inner
    if not facts.abbreviates:
        return spelled
    # What could be two of them is refused by the engine.
    begun = {name for written, name in facts.heard.items() if written.startswith(head)}
    return begun.pop() + dot + inner if len(begun) == 1 else spelled


_short_whole = functools.lru_cache(maxsize=8192)(_whole)


def owned(flag: str, engine: str) -> str | None:
    """The flag of llmgw that `flag` would set, or None."""
    return _remembered(flag, engine, power=False)


def powerful(flag: str, engine: str) -> str | None:
    """The flag that runs code or opens files that `flag` would set, or None."""
    return _remembered(flag, engine, power=True)


def _remembered(flag: str, engine: str, *, power: bool) -> str | None:
    return (_short_set if len(flag) <= _SHORT else _set)(flag, engine, power)


def _set(flag: str, engine: str, power: bool) -> str | None:
    facts = FACTS[engine]
    return _meant(flag, facts.power if power else facts.owned, facts)


_short_set = functools.lru_cache(maxsize=8192)(_set)


def _meant(flag: str, names: Collection[str], facts: EngineFacts) -> str | None:
    head = canonical(flag).partition(".")[0]
    return _completed(head, names, facts) or _completed(head.removeprefix("no-"), names, facts)


def _completed(spelled: str, names: Collection[str], facts: EngineFacts) -> str | None:
    """The one of `names` that the engine reads in `spelled`."""
    if spelled in names:
        return spelled
    if not facts.abbreviates or spelled in facts.exact:
        return None
    return min((name for name in names if name.startswith(spelled)), default=None)


_SWITCHES = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off"})
_DISCLOSED = re.compile(r"://[^/?#\s@:,]*:[^/?#\s@,]+@|authorization\s*[:=]", re.IGNORECASE)


def reserved(variable: str, value: str | None = None) -> str | None:
    """Why no profile may set `variable` (to `value`, where that is known), or None."""
    reason = (_short_reserved if len(variable) <= _SHORT else _reserved)(variable)
    if reason == _MAY_HIDE and value is not None and value.lower() in _SWITCHES:
        return None
    if reason is None and value and _DISCLOSED.search(value):
        return "its value holds a password, and everybody can read a catalog"
    return reason


_HIDES = "its name says that it holds a secret, and everybody can read a catalog"
_MAY_HIDE = "its name says that it may hold a secret, and everybody can read a catalog"


def _reserved(variable: str) -> str | None:
    for pattern, reason in _reasons():
        name = variable.upper() if reason in (_HIDES, _MAY_HIDE) else variable
        if pattern.match(name):
            return reason
    return None


@functools.cache
def _reasons() -> Sequence[tuple[re.Pattern[str], str]]:
    """Each reason with all names that have it."""
    named: dict[str, list[str]] = {}
    for name, reason in RESERVED_ENV.items():
        named.setdefault(reason, []).append(name)
    named |= {_HIDES: list(SECRET_ENV), _MAY_HIDE: list(UNLESS_SWITCHED)}
    return [(re.compile("|".join(map(fnmatch.translate, names))), reason) for reason, names in named.items()]


_short_reserved = functools.lru_cache(maxsize=4096)(_reserved)
