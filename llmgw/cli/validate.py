"""`llmgw validate`: is this catalog valid? Offline, every problem at once."""

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


@click.command()
@click.argument("path", default="catalog", type=click.Path(path_type=pathlib.Path))
@click.option("-o", "--output", type=click.Choice(list(_SHOWN)), default="text", show_default=True)
def command(path: pathlib.Path, output: str) -> None:
    """Check the catalog below PATH (default: ./catalog) without asking anybody.

    Every problem is shown with its place, its source line and what would help. Exit code 3 if there
    is an error; warnings alone are 0.
    """
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
