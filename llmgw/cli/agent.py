"""`llmgw agent`: the process of one GPU machine. It runs engines, keeps weights, and obeys its control plane."""

import dataclasses
import os
import pathlib
import platform
from typing import Any

import click

from llmgw.agent.core import Limits
from llmgw.agent.fetch import Limits as FetchLimits
from llmgw.agent.health import HealthTimers
from llmgw.agent.hub import Hub
from llmgw.agent.serve import Settings, run
from llmgw.agent.supervisor import SupervisorTimers
from llmgw.agent.sweep import SweepTimers
from llmgw.cli.processes import Address, log_to_stderr, run_until_signal, state_dir
from llmgw.engines.registry import ADAPTERS
from llmgw.kit.units import seconds


class Ports(click.ParamType[tuple[int, int]]):
    """`FIRST-LAST`, both included."""

    name = "FIRST-LAST"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        first, _, last = str(value).partition("-")
        if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= 65535):
            self.fail(f"{value!r} is no FIRST-LAST between 1 and 65535", param, ctx)
        return int(first), int(last)


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, found, text = str(value).partition("=")
        if not (key and found and text):
            self.fail(f"{value!r} is no NAME=VALUE", param, ctx)
        return key, text


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


@click.command()
@click.option(
    "--control", type=Address(), default="127.0.0.1:7600", show_default=True, help="The control plane."
)
@click.option("--name", default=platform.node, show_default="host name", help="How people call this node.")
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="Identity, records, logs, weights."
)
@click.option("--cache", type=click.Path(path_type=pathlib.Path), help="Weights, if not below the state.")
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where its engines listen, for the others."
)
@click.option(
    "--ports",
    type=Ports(),
    default="20000-20999",
    show_default=True,
    help="For its engines; agents of one host need different ones.",
)
@click.option("--label", "labels", type=Pair(), multiple=True, help="For node_labels of profiles.")
@click.option("--engine", "engines", type=Pair(), multiple=True, help="An engine's program: llamacpp=/opt/…")
@click.option(
    "--timer", "timers", type=Pair(), multiple=True, help=f"A duration: {', '.join(sorted(_named_timers()))}"
)
@click.option(
    "--hub", default=Hub().endpoint, show_default=True, help="Where hf:// leads; HF_TOKEN is its key."
)
def command(
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
    """Run the agent of this machine in the foreground, until SIGTERM or Ctrl-C.

    Its engines go on without it: the next agent with this state directory takes them over. They end
    when the control plane stops them.
    """
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
    run_until_signal(lambda: run(settings, ready=_ready))


def _ready(node: str) -> None:
    click.echo(f"node {node} is up", err=True)
