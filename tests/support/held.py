"""What a piece of work leaves in memory, and what it took on the way. Called by tests of bounded tables."""

import tracemalloc
from collections.abc import Callable


def held_after(work: Callable[[], None]) -> tuple[int, int]:
    """Bytes that `work` left behind, and the most that it held meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
