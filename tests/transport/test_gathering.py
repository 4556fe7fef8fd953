"""A loop that is spoken to all the time gathers; one that is not answers at once."""

import asyncio
import socket

from llmgw.kit.gathering import AT_ONCE, EVERY, Rounds, gathering_loop


def test_quiet() -> None:
    """Who is asked now and then waits for nobody: a person's question takes fewer rounds than are free."""
    rounds, now, waited = Rounds(0.0), 0.0, 0.0
    for _ in range(10):
        now += 60.0
        for _ in range(AT_ONCE):
            now += 0.0001
            waited += rounds.wait(now)
    assert not waited


def test_busy() -> None:
    """With news each millisecond there is one round in `EVERY` seconds, however many timers cut a rest short."""
    rounds, now, looked = Rounds(0.0), 0.0, 0
    while now < 10.0:
        now += 0.001 + min(rounds.wait(now), 0.1)
        looked += 1
    assert looked <= AT_ONCE + 10.0 / EVERY

    for _ in range(1000):
        rounds.wait(now)
    assert rounds.wait(now) <= EVERY


def test_everything_is_heard_in_order_and_timers_are_kept() -> None:
    """Far more words than rounds are free, each with its answer, and a timer that is due before the next round."""

    async def talk() -> list[bytes]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        heard = []
        with ours, theirs:
            for number in range(AT_ONCE + 5):
                await loop.sock_sendall(theirs, bytes([number]))
                heard.append(await loop.sock_recv(ours, 1))
        began = loop.time()
        await asyncio.sleep(EVERY / 5)
        assert loop.time() - began >= EVERY / 5
        return heard

    with asyncio.Runner(loop_factory=gathering_loop) as runner:
        assert runner.run(talk()) == [bytes([number]) for number in range(AT_ONCE + 5)]
