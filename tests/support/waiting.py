"""Waiting for a condition instead of sleeping: as short as the machine allows, with a deadline and its reason."""

import time
from collections.abc import Callable
from typing import TypeVar

from llmgw.kit.clock import SystemClock

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, *, within: float = 10.0, every: float = 0.02) -> T:
    """The first truthy value of `condition`. After `within` seconds: AssertionError that says `what`."""
    clock = SystemClock()
    deadline = clock.now() + within
    while not (value := condition()):
        if clock.now() > deadline:
            raise AssertionError(f"waited {within:g} s in vain: {what} (last: {value!r})")
        time.sleep(every)
    return value
