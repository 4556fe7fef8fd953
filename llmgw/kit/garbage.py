"""Long pieces of work that make much and throw little away: reading a catalog, rehearsing a plan.

Reference counts free what has no cycles; Python's collector looks for cycles again and again, in all
that there is, while a piece of work makes millions of values that stay.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No look for cycles meanwhile; whoever found the collector at work sets it to work again.

    What was made counts as old then: the next look at what is young would go through all of it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _grow_old()
            gc.enable()


def _grow_old() -> None:
    """Everything that is young is old from now on, without a look at it."""
    if not gc.get_freeze_count():  # what somebody froze is to stay so
        gc.freeze()
        gc.unfreeze()
