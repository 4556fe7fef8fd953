"""The work of `llmgw gateway`: options → settings, and the front door until a signal."""

import asyncio
import gc
import pathlib
import sys
from collections.abc import Callable

import click

from llmgw.cli.processes import log_to_stderr, state_dir
from llmgw.cli.security import Calling, called
from llmgw.cli.timers import changed
from llmgw.gateway import serve
from llmgw.gateway.link import KNOCKING, Pace
from llmgw.gateway.receive import Limits
from llmgw.gateway.serve import Bound, Settings
from llmgw.gateway.upstream import Reach
from llmgw.gateway.waiting import Patience
from llmgw.kit.descriptors import raise_limit
from llmgw.kit.systemd import tell, watched
from llmgw.routing.retry import Policy

PARTS = {
    "limits": Limits(),
    "policy": Policy(),
    "reach": Reach(),
    "pace": Pace(),
    "knocking": KNOCKING,
    "patience": Patience(),
}
"""Whose timers `--timer` sets, as PART.NAME."""


def run(
    *,
    listen: tuple[str, int],
    control: tuple[str, int],
    calling: Calling,
    given: pathlib.Path | None,
    metrics: tuple[str, int] | None,
    name: str,
    drain: float,
    reuse_port: bool,
    timers: tuple[tuple[str, str], ...],
    access_log: bool,
) -> None:
    """Run until SIGTERM or Ctrl-C. `drain` in seconds."""
    log_to_stderr()
    raise_limit()
    set_to = changed(PARTS, timers)
    tls, token = called(control[0], calling)
    settings = Settings(
        state_dir=state_dir(given, "gateway"),
        host=listen[0],
        port=listen[1],
        control_host=control[0],
        control_port=control[1],
        control_tls=tls,
        token=token,
        metrics_host=metrics[0] if metrics is not None else "",
        metrics_port=metrics[1] if metrics is not None else None,
        name=name,
        reuse_port=reuse_port,
        drain=drain,
        limits=set_to["limits"],
        policy=set_to["policy"],
        reach=set_to["reach"],
        pace=Pace(set_to["pace"].report, set_to["knocking"]),
        patience=set_to["patience"],
        access=sys.stderr.write if access_log else None,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(settings))


async def _run(settings: Settings) -> None:
    async with watched():
        await serve.run(settings, ready=_ready)


def _ready(bound: Bound) -> None:
    metrics = f"metrics on port {bound.metrics_port}" if bound.metrics_port else "no metrics"
    click.echo(f"listening on port {bound.port}, {metrics}", err=True)
    tell("READY=1")
    gc.collect()
    gc.freeze()  # what was built to stay is not looked at again: collections are not felt in the tail


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: a fifth less CPU a request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
