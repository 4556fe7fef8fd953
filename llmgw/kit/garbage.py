"""Long pieces of work that make much and throw little away: reading a catalog, rehearsing a plan.

Reference counts free what has no cycles; Python's collector looks for cycles again and again, in all
that there is, while a piece of work makes millions of values that stay.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No look for cycles meanwhile; whoever found the collector at work sets it to work again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
