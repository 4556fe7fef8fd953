"""The work of `llmgw agent`: options → settings, and the agent until a signal."""

import dataclasses
import os
import pathlib
from typing import Any

import click

from llmgw.agent import serve
from llmgw.agent.core import Limits
from llmgw.agent.fetch import Limits as FetchLimits
from llmgw.agent.gpus import NvmlTimers
from llmgw.agent.health import HealthTimers
from llmgw.agent.mounts import MountTimers
from llmgw.agent.serve import Settings
from llmgw.agent.supervisor import SupervisorTimers
from llmgw.agent.sweep import SweepTimers
from llmgw.catalog.hub import Hub
from llmgw.cli.processes import log_to_stderr, run_until_signal, state_dir
from llmgw.cli.security import Calling, called
from llmgw.cli.timers import changed
from llmgw.engines.registry import ADAPTERS
from llmgw.kit.systemd import tell
from llmgw.kit.text import safe

PARTS: dict[str, Any] = {
    "supervisor": SupervisorTimers(),
    "health": HealthTimers(),
    "sweep": SweepTimers(),
    "fetch": FetchLimits(),
    "nvml": NvmlTimers(),
    "mounts": MountTimers(),
    "core": Limits(),
}
"""Whose timers `--timer` sets, as PART.NAME."""


def run(
    *,
    control: tuple[str, int],
    calling: Calling,
    name: str,
    given: pathlib.Path | None,
    cache: pathlib.Path | None,
    address: str,
    ports: tuple[int, int],
    labels: tuple[tuple[str, str], ...],
    engines: tuple[tuple[str, str], ...],
    timers: tuple[tuple[str, str], ...],
    metrics: tuple[str, int] | None,
    hub: str,
) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log_to_stderr()
    for engine, _ in engines:
        if engine not in ADAPTERS:
            raise click.BadParameter(f"{engine!r}: write one of {', '.join(sorted(ADAPTERS))}")
    set_to = changed(PARTS, timers)
    tls, token = called(control[0], calling)
    settings = Settings(
        state_dir=state_dir(given, "agent"),
        name=name,
        control_host=control[0],
        control_port=control[1],
        control_tls=tls,
        token=token,
        address=address,
        ports=ports,
        labels=labels,
        engines=dict(engines),
        cache=cache,
        timers=dataclasses.replace(set_to["supervisor"], health=set_to["health"], sweep=set_to["sweep"]),
        fetch=set_to["fetch"],
        limits=set_to["core"],
        nvml=set_to["nvml"],
        mounts=set_to["mounts"],
        metrics=metrics,
        hub=Hub(hub.rstrip("/"), os.environ.get("HF_TOKEN", "")),
    )
    run_until_signal(lambda: serve.run(settings, ready=lambda node: _ready(settings.name, node)))


def _ready(name: str, node: str) -> None:
    click.echo(f"node {safe(name)} is up, its id is {node}", err=True)
    tell("READY=1")
