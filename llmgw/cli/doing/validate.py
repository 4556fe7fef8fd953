"""The work of `llmgw validate`: read, check, print, refuse."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import click

from llmgw.catalog.diagnostics import Diagnostic, Invalid, as_concise, as_json, as_text
from llmgw.catalog.load import Checked, check, snapshot
from llmgw.kit.text import count

_SHOWN: Mapping[str, Callable[[Sequence[Diagnostic]], str]] = {
    "text": as_text,
    "concise": as_concise,
    "json": as_json,
}


def run(path: pathlib.Path, output: str) -> None:
    """Print every problem. Raises Invalid where there is an error."""
    checked = _check(path)
    if checked.diagnostics or output == "json":
        click.echo(_SHOWN[output](checked.diagnostics))
    if checked.catalog is None:
        raise Invalid(checked.diagnostics)
    if output != "json":
        models, profiles = len(checked.catalog.models), len(checked.catalog.profiles)
        click.echo(f"catalog is valid: {count(models, 'model')}, {count(profiles, 'profile')}")


def _check(path: pathlib.Path) -> Checked:
    """As `load` does, with file names that can be opened from here."""
    files, unreadable = snapshot(path, prefix=f"{path}/")
    return check(files, unreadable)
