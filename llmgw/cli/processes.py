"""What the verbs that run a process have in common: timers, state directories, logs, signals."""

import asyncio
import dataclasses
import logging
import os
import pathlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import click

from llmgw.fleet.expiry import Timers
from llmgw.kit.units import seconds


def read_timers(settings: tuple[str, ...]) -> Timers:
    """The timers with `settings` over their defaults. Raises click.BadParameter."""
    known = {field.name for field in dataclasses.fields(Timers)}
    changed: dict[str, float] = {}
    for setting in settings:
        name, found, text = setting.partition("=")
        name = name.replace("-", "_")
        if not found or name not in known:
            raise click.BadParameter(
                f"{setting!r}: write NAME=DURATION with one of {', '.join(sorted(known))}"
            )
        try:
            changed[name] = float(text) if name == "mass_share" else seconds(text)
        except ValueError as error:
            raise click.BadParameter(f"{setting!r}: {error}") from error
    return dataclasses.replace(Timers(), **changed)


def state_dir(given: pathlib.Path | None, process: str) -> pathlib.Path:
    """`--state-dir`, or `$XDG_STATE_HOME/llmgw/PROCESS`."""
    if given is not None:
        return given
    home = os.environ.get("XDG_STATE_HOME") or str(pathlib.Path.home() / ".local" / "state")
    return pathlib.Path(home) / "llmgw" / process


def log_to_stderr(level: int = logging.INFO) -> None:
    """One line an event on stderr."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    for noisy in ("httpx", "httpcore", "hpack", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def run_until_signal(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run `work()` until it ends, or cancel it at SIGINT or SIGTERM and wait for it to clean up."""

    async def supervised() -> None:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    asyncio.run(supervised())
