"""A peer that is stopped in its tracks: its kernel still takes bytes, nobody answers."""

import asyncio
import os
import signal
import sys
import time

from llmgw.transport.channel import Channel
from llmgw.transport.limits import Limits
from tests.transport.harness import HOST, ended, listening, until

AGENT = """
import asyncio, sys
from llmgw.transport.client import connect

async def main():
    channel = await connect("127.0.0.1", int(sys.argv[1]), "/agent", ping=0.2, timeout=0.6)
    await channel.send(b"here")
    print(await channel.receive())

asyncio.run(main())
"""


def test_frozen_peer() -> None:
    """A frozen agent is noticed within ping + timeout, though its socket stays open."""
    seen: list[Channel] = []
    ends: list[str] = []

    async def on_channel(channel: Channel) -> None:
        await channel.receive()
        seen.append(channel)
        ends.append(await ended(channel))

    async def story() -> None:
        async with listening(on_channel, limits=Limits(ping=0.2, timeout=0.6)) as (_, port):
            agent = await asyncio.create_subprocess_exec(sys.executable, "-c", AGENT, str(port))
            try:
                await until(lambda: seen, "the agent is connected", within=20)
                assert await seen[0].ping(2.0)

                os.kill(agent.pid, signal.SIGSTOP)
                start = time.perf_counter()
                await until(lambda: ends, "the server noticed")
                took = time.perf_counter() - start

                assert ends[0].endswith("did not answer for 0.6 s")
                assert 0.3 < took < 1.5
                assert seen[0].peer.startswith(HOST)
            finally:
                agent.kill()
                await agent.wait()

    asyncio.run(story())
