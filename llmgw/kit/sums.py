"""Numbers that people add up: rounded so that what is shown is a sum. Used by `fit` and by plans.

A tenth is the last digit that is shown, of whatever unit.
"""

import math
from collections.abc import Sequence

GIB, MIB = 1 << 30, 1 << 20


def tenths(sizes: Sequence[int], unit: int) -> list[int]:
    """`sizes` in tenths of `unit`, rounded so that they add up to their sum rounded up."""
    exact = [10 * size / unit for size in sizes]
    found = [math.floor(value) for value in exact]
    missing = math.ceil(round(sum(exact), 6)) - sum(found)
    largest = sorted(range(len(exact)), key=lambda index: found[index] - exact[index])
    for index in largest[:missing]:
        found[index] += 1
    return found


def down(size: int, unit: int) -> int:
    """`size` in whole tenths of `unit`, never more than there is."""
    return math.floor(10 * size / unit)


def memory_unit(size: int) -> tuple[int, str]:
    """The unit in which a sum of this size is shown."""
    return (GIB, "GiB") if size >= GIB else (MIB, "MiB")


def shown(tenth: int) -> str:
    """`71.7` of 717."""
    return f"{tenth // 10}.{tenth % 10}" if tenth >= 0 else f"-{shown(-tenth)}"
