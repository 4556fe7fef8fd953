"""`--timer PART.NAME=DURATION` for the processes whose timers lie in several parts. Used by `agent` and `gateway`."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import click

from llmgw.kit.units import seconds

_NO_DURATIONS = ("factor", "share")
"""What a back-off has beside its times."""


def named(parts: Mapping[str, Any]) -> dict[str, float]:
    """Every timer of `parts`, dataclasses by name, as PART.FIELD with its default in seconds."""
    return {
        f"{part}.{field.name}": getattr(values, field.name)
        for part, values in parts.items()
        for field in dataclasses.fields(values)
        if isinstance(getattr(values, field.name), float) and field.name not in _NO_DURATIONS
    }


def changed(parts: Mapping[str, Any], timers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`parts` with `timers` set. Raises click.BadParameter that lists the names."""
    known = named(parts)
    values: dict[str, dict[str, float]] = {part: {} for part in parts}
    for name, text in timers:
        if name not in known:
            raise click.BadParameter(f"{name!r} is no timer: write one of {', '.join(sorted(known))}")
        part, _, field = name.partition(".")
        try:
            values[part][field] = seconds(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}") from error
    return {part: dataclasses.replace(before, **values[part]) for part, before in parts.items()}
