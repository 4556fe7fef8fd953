"""Which engine arguments and environment variables a profile may not set, in every spelling.

Called by `checks`. The names are data in `engine_facts`; this module knows how a flag can be
written: with `_` or `-`, negated, dotted, or as a beginning that the engine would complete.
"""

import fnmatch
import functools
from collections.abc import Collection

from llmgw.catalog.engine_facts import FACTS, RESERVED_ENV, SECRET_ENV, EngineFacts


def canonical(flag: str) -> str:
    """The spelling that engines document: dashes, except in what follows a dot (a key inside a value)."""
    head, dot, inner = flag.partition(".")
    return head.replace("_", "-") + dot + inner


@functools.lru_cache(maxsize=4096)
def owned(flag: str, engine: str) -> str | None:
    """The flag of llmgw that `flag` would set, or None."""
    return _meant(flag, FACTS[engine].owned, FACTS[engine])


@functools.lru_cache(maxsize=4096)
def powerful(flag: str, engine: str) -> str | None:
    """The flag that runs code or opens files that `flag` would set, or None."""
    return _meant(flag, FACTS[engine].power, FACTS[engine])


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


@functools.lru_cache(maxsize=4096)
def reserved(variable: str) -> str | None:
    """Why no profile may set `variable`, or None."""
    for pattern, reason in RESERVED_ENV.items():
        if fnmatch.fnmatchcase(variable, pattern):
            return reason
    if any(fnmatch.fnmatchcase(variable.upper(), pattern) for pattern in SECRET_ENV):
        return "its name says that it holds a secret, and everybody can read a catalog"
    return None
