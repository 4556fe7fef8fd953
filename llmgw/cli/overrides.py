"""The options that let a plan pass a guard, each naming what it allows. Light: `--help` imports this."""

import functools
from collections.abc import Callable
from typing import Any

import click

from llmgw.planning.fired import Guard


def override_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The four overrides, handed on as one `allowed`."""

    @click.option(
        "--allow-mass-stop", type=click.IntRange(min=1), metavar="N", help="Stop exactly N ready replicas."
    )
    @click.option("--allow-empty", is_flag=True, help="Leave nothing to ask.")
    @click.option(
        "--allow-outage", multiple=True, metavar="MODEL", help="This name has nobody ready on the way."
    )
    @click.option("--allow-removal", multiple=True, metavar="MODEL", help="This protected model goes.")
    @functools.wraps(function)
    def taken(
        *args: Any,
        allow_mass_stop: int | None,
        allow_empty: bool,
        allow_outage: tuple[str, ...],
        allow_removal: tuple[str, ...],
        **more: Any,
    ) -> Any:
        named: set[tuple[Guard, str]] = {("outage", name) for name in allow_outage}
        named |= {("protect", name) for name in allow_removal}
        if allow_mass_stop:
            named.add(("mass_stop", str(allow_mass_stop)))
        if allow_empty:
            named.add(("empty", ""))
        return function(*args, allowed=frozenset(named), **more)

    return taken
