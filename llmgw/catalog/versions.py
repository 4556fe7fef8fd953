"""Which engine versions a profile permits, as far as a rule or a constant depends on it.

Called by `vllm_terms` (which version's constants?), `quantised` (is a rule still true?) and placement (may this
node run it?). A profile that says nothing permits every version.
"""

import functools
import operator
import re
from collections.abc import Callable

Version = tuple[int, int]
NEWEST: Version = (0, 33)
"""The newest vLLM whose source and logs were read."""

_BOUND = re.compile(r"(>=|<=|==|!=|>|<)(\d+)\.(\d+)", re.ASCII)
_WHOLE_BOUND = re.compile(r"(>=|<=|==|!=|>|<)(\d+(?:\.\d+)*)", re.ASCII)
_TOLD = re.compile(r"(?:version:?\s*)?[vb]?(\d+(?:\.\d+)*)", re.ASCII | re.IGNORECASE)
_DIGITS, _PARTS = 18, 8
"""Of each number, and numbers of a version; what is longer counts as far."""
_ORDER: dict[str, Callable[[list[int], list[int]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


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


@functools.lru_cache(maxsize=1024)
def permits(wanted: str, told: str) -> bool:
    """Whether an engine that tells this version will do. One that tells none, or no number, does.

    The order is that of Python packages; `==0.33` and `<=0.33` mean 0.33.1 too. What follows the numbers counts
    for nothing: `0.33.0rc1+cu130` is a 0.33.0.
    """
    found = _TOLD.match(told)
    if found is None:
        return True
    return all(_within(found[1], sign, bound) for sign, bound in _WHOLE_BOUND.findall(wanted))


def possible(wanted: str) -> bool:
    """Whether there is a version inside every bound. What `!=` leaves out, another one beside it replaces."""
    bounds = [(sign, bound) for sign, bound in _WHOLE_BOUND.findall(wanted) if sign != "!="]
    low = max((_numbers(bound) for sign, bound in bounds if sign in (">=", ">", "==")), default=[0])
    found = (low, [*_padded(low, _PARTS - 1), 1])
    return any(
        all(_within(".".join(map(str, version)), sign, bound) for sign, bound in bounds) for version in found
    )


def _within(version: str, sign: str, bound: str) -> bool:
    left, right = _numbers(version), _numbers(bound)
    length = len(right) if sign in ("==", "<=") else max(len(left), len(right))
    return _ORDER[sign](_padded(left, length), _padded(right, length))


def _padded(numbers: list[int], length: int) -> list[int]:
    return [*numbers, *[0] * (length - len(numbers))][:length]


def _numbers(text: str) -> list[int]:
    return [int(part[:_DIGITS]) for part in text.split(".", _PARTS)[:_PARTS]]


def _bounds(wanted: str) -> list[tuple[str, Version]]:
    return [(sign, (int(major), int(minor))) for sign, major, minor in _BOUND.findall(wanted)]
