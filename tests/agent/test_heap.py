"""What the threads of a process take does not stay with each of them, and what they were refused for is not done."""

import asyncio
import subprocess
import sys
import threading

import pytest

from llmgw.kit.threads import use_threads
from tests.support.no_threads import no_threads

PATIENCE = 20.0
HEAPS = """\
import ctypes, threading
from llmgw.kit.threads import share_one_heap

said = {share}
met = threading.Barrier(7)
threads = [threading.Thread(target=lambda: (bytearray(50_000), met.wait())) for _ in range(6)]
for thread in threads:
    thread.start()
met.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def test_threads_share_one_heap() -> None:
    """The C library counts several heaps for six threads that allocate, and one where they were told to share it."""
    assert _heaps("False") > 1
    assert _heaps("share_one_heap()") == 1


def _heaps(share: str) -> int:
    words = [sys.executable, "-c", HEAPS.format(share=share)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.count("<heap nr=")


def test_what_no_thread_was_there_for_is_not_done_later() -> None:
    """Whoever was refused goes on without it: done behind his back it would be done twice, or too late."""
    done: list[str] = []

    async def story() -> None:
        use_threads()
        with no_threads(), pytest.raises(OSError, match="no thread for it"):
            await asyncio.to_thread(done.append, "refused")
        await asyncio.to_thread(done.append, "after")
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(story())
    assert done == ["after"]


def test_threads_are_started_again_once_they_can_be() -> None:
    """Twenty refusals later three that wait for each other still get three threads: nobody starves behind one."""
    met = threading.Barrier(3)

    async def story() -> None:
        use_threads()
        with no_threads():
            for _ in range(20):
                with pytest.raises(OSError, match="no thread for it"):
                    await asyncio.to_thread(print)
        await asyncio.to_thread(print)
        await asyncio.gather(*(asyncio.to_thread(met.wait, PATIENCE) for _ in range(3)))
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(story())
