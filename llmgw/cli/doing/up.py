"""The work of `llmgw up`: three processes as tasks of one event loop, a plan applied, one answer, a farewell."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import click
import httpx

from llmgw.agent import serve as agent
from llmgw.cli.client import Client
from llmgw.cli.doing.apply import accept
from llmgw.cli.doing.hold import held_line
from llmgw.cli.doing.status import followed_lines
from llmgw.cli.exits import Exit
from llmgw.cli.following import Followed, follow
from llmgw.cli.limits import read_limits
from llmgw.cli.processes import log_to_stderr, state_dir
from llmgw.cli.uploads import read_upload
from llmgw.control import serve as control
from llmgw.errors import Failed, Unreachable
from llmgw.fleet.expiry import Timers
from llmgw.gateway import serve as gateway
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import safe
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines

LONGEST_START = 30.0
"""Seconds until the three have found each other."""

POLL = 0.05
"""Seconds between two looks whether it is over."""

LISTEN_EVERY = 0.5
"""Seconds between two looks for news of the catalog."""

LONGEST_APPLY = 1800.0
LONGEST_ANSWER = 120.0
QUESTION = "In one short sentence: what is a GPU?"


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """The addresses of this one-machine fleet."""

    control: tuple[str, int]
    gateway: tuple[str, int]
    metrics: tuple[str, int] | None
    state: pathlib.Path
    catalog: pathlib.Path


def run(
    path: pathlib.Path,
    given: pathlib.Path | None,
    plane: tuple[str, int],
    listen: tuple[str, int],
    metrics: tuple[str, int] | None,
    verbose: bool,
) -> int:
    """Serve until Ctrl-C; returns the exit code."""
    upload = read_upload(path, "serve")
    log_to_stderr(logging.INFO if verbose else logging.ERROR)
    where = Where(plane, listen, metrics, state_dir(given, "up"), path)
    for number in (signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed ends it like Ctrl-C
        signal.signal(number, _interrupt)
    with _running(where) as parts:
        client = Client(f"{plane[0]}:{plane[1]}")
        parts.wait_for_node(client)
        plan: Plan = client.ask(Plan, "/v1/plan", upload.body())
        for line in plan_lines(plan):
            click.echo(line)
        if client.get("/v1/status")["revision"]:
            _take_up(client, parts)
        else:
            accept(client, upload, plan, "llmgw up", LONGEST_APPLY)
        _introduce(client, where)
        parts.follow()
        parts.stay(client)
    return Exit.DONE


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _take_up(client: Client, parts: "_Parts") -> None:
    """Follow the catalog again, as before the restart: what files do not change by themselves is held, and said."""
    event = int(client.get("/v1/status")["event"])
    parts.follow()
    status = parts.wait_for_verdict(client)
    held = [held_line(status["on_hold"])] if status["on_hold"] else []
    for line in (*list(followed_lines(status["followed"]))[1:], *held):
        click.echo(safe(line))
    number = int(status["revision"])
    click.echo(f"revision {number} stands", err=True)
    follow(client, Followed(number, event, whole=True), LONGEST_APPLY)


def _introduce(client: Client, where: Where) -> None:
    """One real answer through the gateway, and what to try next."""
    base = f"http://{where.gateway[0]}:{where.gateway[1]}/v1"
    models = sorted(client.get("/v1/models"), key=lambda model: not model["ready"])
    serve = {name: bool(model["ready"]) for model in models for name in (*model["aliases"], model["model"])}
    name = "default" if serve.get("default") else next(iter(serve), "")
    if serve.get(name):
        click.echo(f"\n> {QUESTION}")
        click.echo(safe(_ask(base, name)))
    click.echo(
        f"""
Serving on {base}
  curl {base}/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
  OpenAI(base_url="{base}", api_key="none")
  edit {where.catalog}/       and it follows; `llmgw plan` shows first what would change
  llmgw replicas      what runs, and where
Ctrl-C drains, stops everything and leaves nothing running."""
    )


def _tell(client: Client, event: int) -> int:
    """Print what is new about the catalog since `event`; returns the newest event."""
    for entry in client.get("/v1/events", after=event):
        event = int(entry["number"])
        if entry["kind"] == "catalog" or entry["about"].startswith("catalog"):
            click.echo(f"{safe(entry['about'])}  {safe(entry['said'])}")
    return event


def _ask(base: str, model: str) -> str:
    body = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": QUESTION}]}
    try:
        answer = httpx.post(f"{base}/chat/completions", json=body, timeout=LONGEST_ANSWER, trust_env=False)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"]).strip()
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
        raise Failed(f"cannot get an answer of {model} through {base}: {error}") from error


class _Parts:
    """The three processes as tasks of one event loop, in a thread of its own: the main one waits and prints."""

    def __init__(self, where: Where) -> None:
        self._where, self._limits = where, read_limits(where.catalog)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follow, self._leave = asyncio.Event(), asyncio.Event()
        self._listens = threading.Event()
        # Asked for, never waited for: a Ctrl-C inside Thread.join makes Python 3.11 believe that the thread has
        # ended, and inside Event.wait it leaves a lock behind that nobody holds.
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="llmgw-up")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drain, stop, and wait for the end of it. A second Ctrl-C leaves at once, engines and all."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._leave.set)
        try:
            while not self._over.is_set():
                time.sleep(POLL)
        except KeyboardInterrupt:
            click.echo("left at once: engines go on, the next `llmgw up` finds them", err=True)
            os._exit(Exit.INTERRUPTED)

    @property
    def running(self) -> bool:
        """Whether there is anything to drain."""
        return self._failure is None and not self._over.is_set()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait_for_node(self, client: Client) -> None:
        """Until our own control plane listens and our agent has registered. Raises Failed."""
        clock = SystemClock()
        limit = clock.now() + LONGEST_START
        while clock.now() < limit:
            self.raise_failure()
            if self._listens.is_set() and "Ready" in client.get("/v1/status")["nodes"].values():
                return
            time.sleep(0.1)
        raise Failed(
            f"cannot start: the agent did not register within {LONGEST_START:.0f}s", help="llmgw up -v"
        )

    def wait_for_verdict(self, client: Client) -> Mapping[str, Any]:
        """The status once it is known what becomes of the catalog as it is written, or why that is not known yet."""
        clock = SystemClock()
        limit = clock.now() + LONGEST_START
        while True:
            self.raise_failure()
            status: Mapping[str, Any] = client.get("/v1/status")
            followed = status["followed"]
            if followed["judged"] or followed["blind"] or status["on_hold"] or clock.now() > limit:
                return status
            time.sleep(0.1)

    def follow(self) -> None:
        """From now on what is written in the catalog is taken as it is written."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._follow.set)

    def stay(self, client: Client) -> None:
        """Until Ctrl-C, or until a part fails; meanwhile say what becomes of edits of the catalog."""
        with contextlib.suppress(KeyboardInterrupt):
            event = int(client.get("/v1/status")["event"])
            while not self._over.is_set():
                time.sleep(LISTEN_EVERY)
                with contextlib.suppress(Unreachable):  # it is leaving, or one of its last calls
                    event = _tell(client, event)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - carried to the main thread, which raises it
            self._failure = error
        finally:
            self._over.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        where, over = self._where, asyncio.Event()
        served = asyncio.ensure_future(
            control.run(
                self._control(),
                ready=lambda *_: self._listens.set(),
                follow=self._follow,
                leave=self._leave,
            )
        )
        door = asyncio.ensure_future(gateway.run(self._gateway(), stop=over))
        node = asyncio.ensure_future(agent.run(self._agent()))
        where.state.mkdir(parents=True, exist_ok=True)
        try:
            await asyncio.wait({served, door, node}, return_when=asyncio.FIRST_COMPLETED)
            over.set()
            await asyncio.wait({served, door, node}, return_when=asyncio.FIRST_EXCEPTION, timeout=1.0)
        finally:
            over.set()
            for task in (node, served, door):
                task.cancel()
            results = await asyncio.gather(served, door, node, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _control(self) -> control.Settings:
        host, port = self._where.control
        timers = Timers(min_ready=2.0)
        following = control.Following(self._where.catalog, "files", "auto")
        return control.Settings(
            self._where.state / "serve",
            host,
            port,
            "this machine",
            timers=timers,
            following=following,
            guards=self._limits,
        )

    def _agent(self) -> agent.Settings:
        host, port = self._where.control
        return agent.Settings(
            state_dir=self._where.state / "agent", name="local", control_host=host, control_port=port
        )

    def _gateway(self) -> gateway.Settings:
        metrics = self._where.metrics
        return gateway.Settings(
            state_dir=self._where.state / "gateway",
            host=self._where.gateway[0],
            port=self._where.gateway[1],
            control_host=self._where.control[0],
            control_port=self._where.control[1],
            metrics_host=metrics[0] if metrics is not None else "",
            metrics_port=metrics[1] if metrics is not None else None,
            drain=5.0,
        )


@contextlib.contextmanager
def _running(where: Where) -> Iterator[_Parts]:
    parts = _Parts(where)
    parts.start()
    try:
        yield parts
    except KeyboardInterrupt:
        pass
    finally:
        if parts.running:
            click.echo("draining and stopping", err=True)
        parts.stop()
    parts.raise_failure()
