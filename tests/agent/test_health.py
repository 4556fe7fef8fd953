"""When an engine has started, is ready, is slow, is dead: by rule, and with real processes."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from llmgw.agent import launcher, procfs
from llmgw.agent.asking import LARGEST, NoAnswer, ask
from llmgw.agent.pulse import Probe, Pulse
from llmgw.agent.sockets import Socket
from llmgw.engines.base import Load
from tests.agent.house import CLOCK, TIMERS, House, alive, gone, launched, ready, until
from tests.agent.making import assign, start

FREEZING = dataclasses.replace(TIMERS, health=dataclasses.replace(TIMERS.health, probe=0.1))
T0, HANG = 1000.0, 60.0
BUSY = Load(running=3, waiting=1)


def judged(*probes: Probe, every: float = 10.0) -> str:
    """What is said after a row of probes, one every `every` seconds; empty = it lives."""
    pulse, now = Pulse(T0), T0
    for probe in probes:
        now += every
        pulse = pulse.after(probe, now)
        if said := pulse.dead(probe, now, HANG):
            return said
    return ""


def test_three_refusals_in_a_row_are_dead() -> None:
    """One or two refused connections are a full backlog; three are an engine that serves no more."""
    refused, answered = Probe("refused"), Probe("answered")
    assert judged(refused, refused, answered, refused, refused) == ""
    assert judged(refused, refused, refused) == (
        "its process lives, its port refuses connections (3 times in a row)"
    )


def test_an_engine_that_stands_still_is_called_slow_long_before_it_is_dead() -> None:
    """From a sixth of the hang limit on, in steps: for how long, and what it is seen to lack; then nothing again."""
    pulse, said = Pulse(T0), []
    for n in range(1, 6):
        probe = Probe("answered", load=BUSY, progress=7.0)
        pulse = pulse.after(probe, T0 + 7.0 * n)
        said.append(pulse.slow(probe, T0 + 7.0 * n, HANG))
    assert said == [
        "",
        "",
        "slow for 10s: no token since then, 3 requests in flight",
        "slow for 20s: no token since then, 3 requests in flight",
        "slow for 20s: no token since then, 3 requests in flight",
    ]
    moved = Probe("answered", load=BUSY, progress=8.0)
    assert pulse.after(moved, T0 + 40).slow(moved, T0 + 40, HANG) == ""
    refused = Probe("refused")
    assert Pulse(T0).after(refused, T0 + 15).slow(refused, T0 + 15, HANG) == (
        "slow for 10s: its port refuses connections"
    )


def test_slow_is_not_dead_while_processor_time_moves() -> None:
    """An engine that answers no probe for ten minutes but works is left alone."""
    assert judged(*[Probe("slow", cpu=n) for n in range(60)]) == ""


def test_no_answer_and_no_processor_time_is_dead_at_the_hang_limit() -> None:
    """A frozen process is found by its silence and its stillness together."""
    frozen = Probe("slow", cpu=5, said="/health does not answer and no processor time is used")
    assert judged(*[frozen] * 6) == ""
    assert judged(*[frozen] * 7).startswith("no progress for 1m: /health does not answer")


def test_requests_that_stand_still_are_dead_though_health_says_200() -> None:
    """In flight, counters still, for the hang limit: dead, whatever the page says."""
    stuck = Probe("answered", load=BUSY, progress=7.0)
    assert judged(*[stuck] * 6) == ""
    assert judged(*[stuck] * 7) == "no progress for 1m with 3 requests in flight"


def test_requests_that_only_wait_are_stuck_too() -> None:
    """None of them came into the batch: an engine that takes nothing up for the hang limit is dead as well."""
    stuck = Probe("answered", load=Load(running=0, waiting=2), progress=7.0)
    assert judged(*[stuck] * 6) == ""
    assert judged(*[stuck] * 7) == "no progress for 1m with 2 waiting"
    assert Pulse(T0).after(stuck, T0 + 1).after(stuck, T0 + 12).slow(stuck, T0 + 12, HANG) == (
        "slow for 10s: no token since then, 2 waiting"
    )
    assert judged(*[dataclasses.replace(stuck, progress=float(n)) for n in range(60)]) == ""


def test_counters_that_move_are_work() -> None:
    """The same requests in flight for ten minutes, with tokens coming: alive."""
    assert judged(*[Probe("answered", load=BUSY, progress=float(n)) for n in range(60)]) == ""


def test_an_idle_engine_never_hangs() -> None:
    """Nothing in flight, nothing moves: that is rest."""
    assert judged(*[Probe("answered", load=Load(0, 0), progress=7.0)] * 60) == ""


def test_an_engine_without_counters_is_judged_by_its_health_alone() -> None:
    """No metrics: absence of numbers is no standstill."""
    assert judged(*[Probe("answered")] * 60) == ""


def test_an_engine_that_says_503_for_the_hang_limit_is_dead() -> None:
    """Unwell for a moment is a moment; for a minute it is over."""
    unwell = Probe("unwell", said="/health answers 503")
    assert judged(*[unwell] * 5, Probe("answered"), *[unwell] * 5) == ""
    assert judged(*[unwell] * 7) == "no progress for 1m: /health answers 503"


# --- for real --------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[House]:
    """A node without cgroups: nothing here depends on them."""
    house = House(tmp_path, with_cgroups=False)
    yield house
    house.clean()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("unwell", "/health answers 503"),
        ("deep-models", "/v1/models names nothing (200), not alpha"),
        ("deep-completion", f"its first completion answers 200: {'[' * 200}"),
        ("wrong-name", "/v1/models names somebody-else, not alpha"),
        ("broken", 'its first completion answers 500: {"choices": [{"text": "I"}]}'),
    ],
)
def test_healthy_is_not_ready(house: House, does: str, said: str) -> None:
    """A page that says 200 proves nothing; what is missing is said, and is the reason at the deadline."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does=does, start_deadline=1.0)
            await launched(agent, shard)
            await until(lambda: agent.state.shards[shard.key].reason == said, said)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason.endswith(f"it was started: {said}")
            assert "ready" not in house.states(shard.key)
            await gone(agent, shard)

    asyncio.run(story())


def test_an_engine_that_cannot_complete_is_never_ready(house: House) -> None:
    """Health 200, completions hang: not ready, and over at the start deadline."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="mute", start_deadline=0.8)
            await launched(agent, shard)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert "ready" not in house.states(shard.key)
            await gone(agent, shard)

    asyncio.run(story())


FOREIGN = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"data": [{"id": "alpha"}]}')
    do_POST = do_GET
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_stranger_that_answers_on_our_port_makes_nobody_ready(house: House) -> None:
    """All the right answers from a socket that is not of our tree: named, and never ready."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="silent", start_deadline=600.0)
            await launched(agent, shard)
            stranger = strange(shard.port)
            try:
                said = f"port {shard.port} is answered by pid {stranger.pid}, which is not of this shard"
                await until(lambda: agent.state.shards[shard.key].reason == said, said)
            finally:
                stranger.kill()
                stranger.wait()
            await gone(agent, shard)

    asyncio.run(story())


def strange(port: int) -> "subprocess.Popen[bytes]":
    """Somebody else's server, which answers everything."""
    return subprocess.Popen([sys.executable, "-S", "-c", FOREIGN, str(port)])


def test_idle_follows_the_engines_own_counters(house: House) -> None:
    """Nothing running and nothing waiting is idle; one request is not."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="moving")
            pid = await ready(house, agent, shard)
            await until(lambda: agent.state.idle() == ((shard.key, True),), "idle")
            os.kill(pid, signal.SIGUSR2)
            await until(lambda: agent.state.idle() == ((shard.key, False),), "busy")
            await gone(agent, shard)

    asyncio.run(story())


def test_an_engine_that_stopped_listening_is_dead(house: House) -> None:
    """Its process lives, its port refuses: failed, and the process is ended."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            os.kill(pid, signal.SIGUSR1)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert "its port refuses connections" in house.last(shard.key).reason
            await until(lambda: not alive(pid), "its end")
            await gone(agent, shard)

    asyncio.run(story())


def test_work_that_stands_still_is_dead(house: House) -> None:
    """In flight without a token for the hang limit: failed with the numbers."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            os.kill(pid, signal.SIGUSR2)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == "no progress for 600ms with 1 request in flight"
            await gone(agent, shard)

    asyncio.run(story())


def test_a_port_that_nobody_held_at_exec_is_free(house: House) -> None:
    """A listener that went away before the start is no reason to refuse it."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            with socket.create_server(("127.0.0.1", shard.port)):
                pass
            await ready(house, agent, shard)
            await gone(agent, shard)

    asyncio.run(story())


@pytest.mark.parametrize("with_cgroups", [True, False])
def test_a_frozen_engine_is_dead_and_its_tree_ends(tmp_path: pathlib.Path, with_cgroups: bool) -> None:
    """SIGSTOP: no answer and no processor time for the hang limit, in a group or in a session."""
    house = House(tmp_path, with_cgroups=with_cgroups)

    async def story() -> None:
        async with house.agent(timers=FREEZING) as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: house.last(shard.key).state == "failed", "failed")
            assert house.last(shard.key).reason == (
                "no progress for 600ms: /health does not answer and no processor time is used"
            )
            await until(lambda: not alive(pid), "its end")
            await gone(agent, shard)

    try:
        asyncio.run(story())
    finally:
        house.clean()


def test_a_slow_engine_says_so_and_nothing_restarts(house: House) -> None:
    """Probes without an answer, twice in a row: it is slow until it answers again, by the same process."""

    async def story() -> None:
        patient = dataclasses.replace(FREEZING.health, hang=60.0)
        async with house.agent(timers=dataclasses.replace(FREEZING, health=patient)) as agent:
            shard = house.spec()
            pid = await ready(house, agent, shard)
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: house.last(shard.key).slow, "slow")
            os.kill(pid, signal.SIGCONT)
            await until(lambda: not house.last(shard.key).slow, "well again")
            assert (house.last(shard.key).state, house.last(shard.key).pid, alive(pid)) == (
                "ready",
                pid,
                True,
            )
            assert house.states(shard.key)[-1] == "ready"
            await gone(agent, shard)

    try:
        asyncio.run(story())
    finally:
        house.clean()


def test_one_late_answer_is_not_slow() -> None:
    """Two in a row are; one good answer ends it; a page that says it is unwell counts like silence."""
    pulse, seen = Pulse(T0), []
    for outcome in ("slow", "answered", "slow", "unwell", "slow", "answered"):
        pulse = pulse.after(Probe(outcome), T0)  # type: ignore[arg-type]
        seen.append(pulse.silent)
    assert seen == [False, False, False, True, True, False]


@pytest.mark.parametrize("does", ["odd-metrics", "long-metrics"])
def test_odd_counters_are_no_counters(house: House, does: str) -> None:
    """What calls itself gzip and is not, numbers, brackets or lines without an end: it stays ready."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does=does)
            pid = await ready(house, agent, shard)
            looked = 20 * TIMERS.health.every
            await until(lambda: agent.state.shards[shard.key].since + looked < CLOCK.now(), "many looks")
            assert agent.state.shards[shard.key].state == "ready"
            assert agent.state.idle() == ()
            assert alive(pid)
            await gone(agent, shard)

    asyncio.run(story())


def test_a_machine_that_lets_nobody_look_ends_no_watch(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file descriptor is left: it is said, the agent lives, and the shard is ready once there is one."""
    look, refused = procfs.sockets, threading.Event()

    def sockets() -> list[Socket]:
        if refused.is_set():
            return look()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec()
            agent.order(assign(shard))
            await until(lambda: agent.state.shards[shard.key].state == "held", "held")
            with monkeypatch.context() as patch:
                patch.setattr(launcher, "must_be_free", lambda _: None)
                patch.setattr(procfs, "sockets", sockets)
                agent.order(start(shard))
                await until(
                    lambda: "Too many open files" in agent.state.shards[shard.key].reason, "it is said"
                )
                refused.set()
                await until(lambda: agent.state.shards[shard.key].state == "ready", "ready")
            await gone(agent, shard)

    asyncio.run(story())


def test_an_engine_for_embeddings_is_ready_once_it_embeds(house: House) -> None:
    """It refuses every completion, and was never asked for one."""

    async def story() -> None:
        async with house.agent() as agent:
            shard = house.spec(does="embeds", args=(("embeddings", True),))
            await ready(house, agent, shard)
            await gone(agent, shard)

    asyncio.run(story())


# --- one answer ------------------------------------------------------------------------------


async def asked(port: int, within: float = 5.0) -> NoAnswer:
    """Why there is no answer."""
    with pytest.raises(NoAnswer) as caught:
        await ask("127.0.0.1", port, "GET", "/x", within=within)
    return caught.value


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Says = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(says: Says) -> AsyncIterator[int]:
    """The port of a server, whose one connection is over afterwards."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")  # a close before that is a reset, which loses what was sent
            await says(writer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])
        await over.wait()


@pytest.mark.parametrize(
    ("says", "outcome", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (LARGEST + 1), "large", "/x answers with more than 524.3 KB"),
        (CHUNKED + b"1\r\nx\r\n" * 10_000, "large", "/x answers in more than 4096 pieces"),
        (CHUNKED + (b"1;" + b"x" * 8000 + b"\r\nx\r\n") * 100, "large", "/x answers with more than 524.3 KB"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, "large", "/x answers in more than 4096 pieces"),
        (b"SSH-2.0\r\n", "broke", "/x breaks off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "broke", "/x breaks off"),
    ],
)
def test_an_answer_that_is_none_is_said(says: bytes, outcome: str, said: str) -> None:
    """Too large in bytes or pieces, of another protocol, cut: no other exception ever."""

    async def at_once(writer: asyncio.StreamWriter) -> None:
        writer.write(says)

    async def story() -> None:
        async with serving(at_once) as port:
            none = await asked(port)
            assert none.outcome == outcome
            assert said in none.said

    asyncio.run(story())


def test_an_answer_that_drips_is_late() -> None:
    """A byte now and then keeps no probe for longer than it may take."""

    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def story() -> None:
        async with serving(drips) as port:
            assert (await asked(port, within=0.2)).outcome == "late"

    asyncio.run(story())


@pytest.mark.parametrize("host", ["bad host", f"{'a' * 70}.b", "[::1", "a\0b", ""])
@pytest.mark.parametrize("port", [1, 99999])
def test_an_address_that_is_none_is_said(host: str, port: int) -> None:
    """Whoever wrote it reads it; the agent lives."""
    with pytest.raises(NoAnswer) as caught:
        asyncio.run(ask(host, port, "GET", "/x", within=5.0))
    assert caught.value.outcome in ("odd", "refused")


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    """Nobody else is asked in an engine's name."""

    async def moved(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno")

    async def story() -> None:
        async with serving(moved) as port:
            answer = await ask("127.0.0.1", port, "GET", "/x", within=5.0)
            assert (answer.status, answer.raw) == (302, b"no")

    asyncio.run(story())


def test_no_descriptor_of_ours_is_not_a_refusal_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three refusals end an engine: what this machine lacks must not count as one."""

    async def nothing_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "open_connection", nothing_left)
    with pytest.raises(OSError, match="Too many open files"):
        asyncio.run(ask("127.0.0.1", 1, "GET", "/x", within=1.0))
