"""What the verbs that run a process have in common: timers, state directories, logs, signals."""

import asyncio
import contextlib
import dataclasses
import errno
import io
import logging
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from llmgw.cli.options import LONGEST
from llmgw.errors import Failed
from llmgw.fleet.expiry import Timers
from llmgw.kit.systemd import watched
from llmgw.kit.units import seconds, show_seconds

LATENESS = 1.2
"""How much later than asked for a heartbeat may come."""


def read_timers(settings: tuple[str, ...], heartbeat: float) -> Timers:
    """The timers with `settings` over their defaults, for heartbeats every `heartbeat` seconds.

    Raises click.BadParameter where one cannot be read, or where two contradict each other.
    """
    changed = dict(_read_timer(setting) for setting in settings)
    timers = dataclasses.replace(Timers(), **changed)
    if said := _contradiction(timers, heartbeat):
        raise click.BadParameter(said)
    return timers


def _read_timer(setting: str) -> tuple[str, float]:
    known = {field.name for field in dataclasses.fields(Timers)}
    name, found, text = setting.partition("=")
    name = name.replace("-", "_")
    if not found or name not in known:
        raise click.BadParameter(f"{setting!r}: write NAME=DURATION with one of {', '.join(sorted(known))}")
    try:
        value = _share(text) if name == "mass_share" else seconds(text)
    except ValueError as error:
        raise click.BadParameter(f"{setting!r}: {error}") from error
    if not 0 < value <= LONGEST:
        raise click.BadParameter(f"{setting!r}: more than 0 and at most 365d is possible")
    return name, value


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError("a share is a number, more than 0 and at most 1, such as 0.55")
    return share


def _contradiction(timers: Timers, heartbeat: float) -> str:
    """What two timers cannot mean at once, with both values; nothing where they agree."""
    if timers.lost <= timers.unreachable:
        return (
            f"lost={show_seconds(timers.lost)} must be longer than unreachable="
            f"{show_seconds(timers.unreachable)}: a node is unreachable before it is lost"
        )
    if timers.unreachable <= heartbeat * LATENESS:
        return (
            f"unreachable={show_seconds(timers.unreachable)} must be longer than {LATENESS:g} × heartbeat="
            f"{show_seconds(heartbeat)}: a node that is on time would be unreachable"
        )
    if timers.backoff_cap < timers.backoff_base:
        return (
            f"backoff_cap={show_seconds(timers.backoff_cap)} must not be shorter than backoff_base="
            f"{show_seconds(timers.backoff_base)}"
        )
    return ""


def state_dir(given: pathlib.Path | None, process: str) -> pathlib.Path:
    """`--state-dir`, or `$XDG_STATE_HOME/llmgw/PROCESS`; it is there then. Raises Failed where it cannot be."""
    home = os.environ.get("XDG_STATE_HOME") or str(pathlib.Path.home() / ".local" / "state")
    path = given if given is not None else pathlib.Path(home) / "llmgw" / process
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        raise Failed(
            f"cannot use {path} for state: {(error.strerror or str(error)).lower()}",
            help="name another --state-dir, or make this one writable",
        ) from error
    return path


def log_to_stderr(level: int = logging.INFO) -> None:
    """One line an event on stderr. From now on a screen that is closed is written to in vain."""
    sys.stdout, sys.stderr = _outliving(sys.stdout), _outliving(sys.stderr)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    for noisy in ("httpx", "httpcore", "hpack", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _Screen(io.FileIO):
    """A terminal, a file or a pipe that may close before we end: what it does not take is nobody's any more.

    Ctrl-C ends the `tee` of `llmgw up | tee` too, and the drain that it asks for has lines to write.
    """

    def write(self, data: Any) -> int:
        """How much was written; all of it where that cannot be."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _outliving(stream: Any) -> Any:
    """`stream` by way of a `_Screen`; itself where it is no file of the system."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    if not isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):  # unbuffered has no raw one
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    screen = io.BufferedWriter(_Screen(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(
        screen,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def run_until_signal(
    work: Callable[[], Coroutine[Any, Any, Any]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run `work()` until it ends, or cancel it at SIGINT, SIGTERM or SIGHUP and wait for it to clean up.

    Whoever asked a process to end, and it ended in order, sees exit 0. A SIGHUP that was told to be ignored,
    as `nohup` does, stays so.
    """

    async def supervised() -> None:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, task.cancel)
        async with watched():
            await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(supervised())
