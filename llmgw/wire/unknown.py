"""Keys that this release does not know: told apart from what it knows, and put back when that is said again.

Called for the specs of shards, which their control plane gets back: on the wire by `wire.messages`, on the disk by
`agent.records`. Values are what JSON has.
"""

from collections.abc import Mapping
from typing import Any


def beyond(said: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `said` that `known` has no key for, at every depth; empty = it has all."""
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key not in known:
            found[key] = value
        elif rest := _rest(value, known[key]):
            found[key] = rest
    return found


def merged(kept: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """`known`, with the keys that only `kept` has; down through mappings, and through lists as long as each other."""
    return {
        **kept,
        **{key: _both(kept[key], value) if key in kept else value for key, value in known.items()},
    }


def _rest(said: Any, known: Any) -> Any:
    """What is beyond in a value that is known; of a list one for each item, None = nothing is."""
    if isinstance(said, Mapping) and isinstance(known, Mapping):
        return beyond(said, known)
    if isinstance(said, list) and isinstance(known, list) and len(said) == len(known):
        rests = [_rest(*pair) or None for pair in zip(said, known, strict=True)]
        return rests if any(rests) else None
    return None


def _both(kept: Any, known: Any) -> Any:
    if isinstance(kept, Mapping) and isinstance(known, Mapping):
        return merged(kept, known)
    if isinstance(kept, list) and isinstance(known, list) and len(kept) == len(known):
        return [_both(*pair) for pair in zip(kept, known, strict=True)]
    return known
