"""What the threads of a process take does not stay with each of them."""

import subprocess
import sys

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
