"""Which engine versions a profile permits, as far as a rule or a constant depends on it.

Called by `vllm_terms` (which version's constants?) and `quantised` (is a rule still true?). A profile that
says nothing permits every version.
"""

import re

Version = tuple[int, int]
NEWEST: Version = (0, 33)
"""The newest vLLM whose source and logs were read."""

_BOUND = re.compile(r"(>=|<=|==|!=|>|<)(\d+)\.(\d+)", re.ASCII)


def newest(wanted: str) -> Version:
    """The newest version that `wanted` permits; NEWEST where it is open above."""
    for sign, named in _bounds(wanted):
        if sign in ("==", "<="):
            return named
        if sign == "<":
            return (named[0], named[1] - 1) if named[1] else (max(0, named[0] - 1), 999)
    return NEWEST


def oldest(wanted: str) -> Version:
    """The oldest version that `wanted` permits; (0, 0) where it is open below."""
    return max((named for sign, named in _bounds(wanted) if sign in ("==", ">=", ">")), default=(0, 0))


def _bounds(wanted: str) -> list[tuple[str, Version]]:
    return [(sign, (int(major), int(minor))) for sign, major, minor in _BOUND.findall(wanted)]
