"""What people upload: read beside the loop, and never more than a catalog may be."""

import asyncio
import pathlib

from llmgw.control.adoption import Proposal
from llmgw.kit.clock import SystemClock
from tests.control.plane import Plane, files

LARGE = 2_000
"""Models of a catalog that takes a good part of a second to read."""


def test_a_large_upload_is_read_beside_the_loop(tmp_path: pathlib.Path) -> None:
    """While it is read, everybody else is heard: agents that were not answered for seconds were let go."""
    plane, clock = Plane(tmp_path), SystemClock()
    proposal = Proposal(files(*(f"m{n}" for n in range(LARGE)), replicas=0))

    async def longest_silence() -> tuple[float, float]:
        reading = asyncio.ensure_future(plane.adoption._load(proposal.files))
        began = heard = clock.now()
        longest = 0.0
        while not reading.done():
            await asyncio.sleep(0.001)
            longest, heard = max(longest, clock.now() - heard), clock.now()
        assert len((await reading).models) == LARGE
        return longest, clock.now() - began

    longest, whole = asyncio.run(longest_silence())
    assert longest < whole / 4
