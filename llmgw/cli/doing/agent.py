"""The work of `llmgw agent`: options → settings, and the agent until a signal."""

import dataclasses
import os
import pathlib
from typing import Any

import click

from llmgw.agent import serve
from llmgw.agent.core import Limits
from llmgw.agent.fetch import Limits as FetchLimits
from llmgw.agent.health import HealthTimers
from llmgw.agent.hub import Hub
from llmgw.agent.serve import Settings
from llmgw.agent.supervisor import SupervisorTimers
from llmgw.agent.sweep import SweepTimers
from llmgw.cli.processes import log_to_stderr, run_until_signal, state_dir
from llmgw.engines.registry import ADAPTERS
from llmgw.kit.units import seconds

PARTS: dict[str, Any] = {
    "health": HealthTimers(),
    "sweep": SweepTimers(),
    "fetch": FetchLimits(),
    "core": Limits(),
}
"""Whose timers `--timer` sets, as PART.NAME."""


def _named_timers() -> dict[str, float]:
    """Every timer of the agent by its name, with its default in seconds."""
    return {
        f"{part}.{field.name}": getattr(values, field.name)
        for part, values in PARTS.items()
        for field in dataclasses.fields(values)
        if isinstance(getattr(values, field.name), float)
    }


def _changed(timers: tuple[tuple[str, str], ...]) -> dict[str, dict[str, Any]]:
    """`timers` by part and field, in seconds. Raises click.BadParameter."""
    changed: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for name, text in timers:
        if name not in _named_timers():
            raise click.BadParameter(
                f"{name!r} is no timer: write one of {', '.join(sorted(_named_timers()))}"
            )
        part, _, field = name.partition(".")
        try:
            changed[part][field] = seconds(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}") from error
    return changed


def run(
    *,
    control: tuple[str, int],
    name: str,
    given: pathlib.Path | None,
    cache: pathlib.Path | None,
    address: str,
    ports: tuple[int, int],
    labels: tuple[tuple[str, str], ...],
    engines: tuple[tuple[str, str], ...],
    timers: tuple[tuple[str, str], ...],
    hub: str,
) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log_to_stderr()
    for engine, _ in engines:
        if engine not in ADAPTERS:
            raise click.BadParameter(f"{engine!r}: write one of {', '.join(sorted(ADAPTERS))}")
    changed = _changed(timers)
    settings = Settings(
        state_dir=state_dir(given, "agent"),
        name=name,
        control_host=control[0],
        control_port=control[1],
        address=address,
        ports=ports,
        labels=labels,
        engines=dict(engines),
        cache=cache,
        timers=SupervisorTimers(
            health=dataclasses.replace(HealthTimers(), **changed["health"]),
            sweep=dataclasses.replace(SweepTimers(), **changed["sweep"]),
        ),
        fetch=dataclasses.replace(FetchLimits(), **changed["fetch"]),
        limits=dataclasses.replace(Limits(), **changed["core"]),
        hub=Hub(hub.rstrip("/"), os.environ.get("HF_TOKEN", "")),
    )
    run_until_signal(lambda: serve.run(settings, ready=_ready))


def _ready(node: str) -> None:
    click.echo(f"node {node} is up", err=True)
