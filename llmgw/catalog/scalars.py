"""What an unquoted YAML scalar means: the core schema of YAML 1.2, whatever a directive says.

Called by `builder` for each plain scalar. `no`, `on` and `1:30` are text. A number that would not
be written back as it stands is refused: a revision `0123` or `12e4567` must not change on the way.
"""

import functools
import math
import re

_INT = re.compile(r"[-+]?[0-9]+\Z", re.ASCII)
_OTHER_BASE = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z", re.ASCII)
WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
NUMERIC = frozenset("0123456789+-.")
_LONGEST = 18  # digits: every whole number fits 64 bits
_SHORT = 24
"""Characters of a number that is remembered: catalogs hold the same few numbers again and again."""


class Unclear(ValueError):
    """A plain scalar that reads as a number and would not come back as it was written."""


def plain(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar. Raises Unclear with the reason and what to write."""
    if text and text[0] in NUMERIC:
        return _remembered(text) if len(text) <= _SHORT else _number(text)
    return WORDS.get(text, text)


def _number(text: str) -> str | int | float:
    if _INT.match(text):
        return _whole(text)
    if _OTHER_BASE.match(text):
        return int(text, 0)
    if _NOT_FINITE.match(text):
        raise Unclear(f"{text} is no number that anything here can use")
    if _FLOAT.match(text):
        return _finite(text)
    return text


_remembered = functools.lru_cache(maxsize=4096)(_number)


def _whole(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > _LONGEST:
        raise Unclear(f"unquoted {text[:40]} has {len(digits)} digits, {_LONGEST} are the most")
    if digits[0] == "0" and digits != "0":
        raise Unclear(f"unquoted {text} reads as the number {int(text)}")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Unclear(f"unquoted {text} reads as a number too large to hold")
    return value
