"""Durations and sizes as people write and read them: `500ms`, `20m`, `80GiB`, `65.5 GB`.

Used by the catalog (what people wrote), by settings and by every screen.
"""

import functools
import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SHORT = 16  # characters of a quantity that is remembered: the same few are written again and again
_NUMBER_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\Z", re.ASCII)


def seconds(text: str) -> float:
    """Seconds of `500ms`, `30s`, `20m`, `2h`, `1d`. Raises ValueError that says what is accepted."""
    return _short_seconds(text) if len(text) <= _SHORT else _seconds(text)


def _seconds(text: str) -> float:
    return _scaled(text, _SECONDS, "a duration such as 500ms, 30s, 20m or 2h")


_short_seconds = functools.lru_cache(maxsize=1024)(_seconds)


def size(text: str) -> int:
    """Bytes of `80GiB` or `65.5GB`. Raises ValueError that says what is accepted."""
    return _short_size(text) if len(text) <= _SHORT else _size(text)


def _size(text: str) -> int:
    return round(_scaled(text, _BYTES, "a size such as 80GiB or 65GB"))


_short_size = functools.lru_cache(maxsize=1024)(_size)


def _scaled(text: str, units: dict[str, float] | dict[str, int], wanted: str) -> float:
    match = _NUMBER_UNIT.match(text.strip())
    factor = units.get(match[2]) if match else None
    if match is None or factor is None:
        raise ValueError(f"cannot read {text!r} as {wanted}")
    value = float(match[1]) * factor
    if not math.isfinite(value):
        raise ValueError(f"cannot use {text[:20]}…: that is too large for {wanted}")
    return value


def show_seconds(value: float) -> str:
    """`9s`, `2m41s`, `3h12m`, `9d`: two units at most, as short as it stays exact enough to act on."""
    if value < 0:
        return "-" + show_seconds(-value)
    if value < 1:
        return f"{round(value * 1000)}ms"
    whole = round(value)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d{hours}h" if days < 3 and hours else f"{days}d"
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if minutes:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    return f"{rest}s"


def show_bytes(value: float) -> str:
    """Files, disks and networks in decimal units: `65.5 GB`, `1.5 MB`, `312 B`."""
    for unit in ("TB", "GB", "MB", "KB"):
        if abs(value) >= _BYTES[unit]:
            return f"{value / _BYTES[unit]:.1f} {unit}"
    return f"{round(value)} B"


def show_memory(value: float) -> str:
    """Memory in binary units: `71.7 GiB`, `512 MiB`."""
    for unit in ("TiB", "GiB", "MiB"):
        if abs(value) >= _BYTES[unit]:
            amount = value / _BYTES[unit]
            return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"
    return f"{value / 1024:.0f} KiB"
