"""The work of `llmgw validate`: read the whole catalog, print what concerns the part asked for, refuse."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import click

from llmgw.catalog.diagnostics import Diagnostic, Invalid, as_concise, as_text, summary
from llmgw.catalog.load import Checked, check, snapshot
from llmgw.catalog.reports import as_github, as_json, as_sarif
from llmgw.cli.places import look_for_catalog
from llmgw.errors import CatalogInvalid
from llmgw.kit.text import count, safe

_SHOWN: Mapping[str, Callable[[Sequence[Diagnostic]], str]] = {
    "text": as_text,
    "concise": as_concise,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
}
_WHOLE = ("json", "sarif")
"""Documents: printed where there is no problem too, with nothing after them."""


def run(path: pathlib.Path, output: str, strict: bool, root: pathlib.Path | None) -> None:
    """Print every problem of `path`. Raises CatalogInvalid where it is refused, Failed where nothing is there."""
    look_for_catalog(path, "check", file=True)
    whole = root or around(path)
    look_for_catalog(whole, "check")
    files, unreadable = snapshot(whole, prefix=f"{whole}/")
    checked = check(files, unreadable)
    if whole != path and not any(_within(name, path) for name in files):
        raise CatalogInvalid(f"cannot check {path}: no YAML file of the catalog {whole} is there")
    found = [problem for problem in checked.diagnostics if whole == path or _concerns(problem, path)]
    if found or output in _WHOLE:
        click.echo(_SHOWN[output](found))
    _refuse(found, strict, answered=output in _WHOLE)
    if output not in _WHOLE:
        click.echo(_valid(checked) if whole == path else _part_valid(path, whole, checked, found))


def around(path: pathlib.Path) -> pathlib.Path:
    """The nearest directory called `catalog` that `path` is or lies in, else the directory that it is or lies in."""
    above = [path, *path.parents]
    if not path.is_absolute():
        here = pathlib.Path.cwd()
        above += [pathlib.Path(os.path.relpath(directory)) for directory in (here, *here.parents)]
    near = next((place for place in above if _absolute(place).name == "catalog" and place.is_dir()), None)
    return near or (path.parent if path.is_file() else path)


def _absolute(path: pathlib.Path | str) -> pathlib.Path:
    """With `..` taken out, links left in: as people read it."""
    return pathlib.Path(os.path.abspath(path))


def _within(name: str, path: pathlib.Path) -> bool:
    return _absolute(name).is_relative_to(_absolute(path))


def _concerns(problem: Diagnostic, path: pathlib.Path) -> bool:
    """Whether `path` is, or holds, a file that the problem points at."""
    spots = (problem.spot, *(item.spot for item in problem.related))
    return any(_within(spot.place.file, path) for spot in spots)


def _refuse(found: Sequence[Diagnostic], strict: bool, *, answered: bool) -> None:
    refused: CatalogInvalid
    if any(problem.severity == "error" for problem in found):
        refused = Invalid(found)
    elif strict and found:
        refused = CatalogInvalid(f"cannot accept the catalog: {summary(found)}, and --strict accepts none")
    else:
        return
    refused.answered = answered
    raise refused


def _valid(checked: Checked) -> str:
    assert checked.catalog is not None
    models, profiles = len(checked.catalog.models), len(checked.catalog.profiles)
    return f"catalog is valid: {count(models, 'model')}, {count(profiles, 'profile')}"


def _part_valid(
    path: pathlib.Path, whole: pathlib.Path, checked: Checked, found: Sequence[Diagnostic]
) -> str:
    others = len(checked.diagnostics) - len(found)
    elsewhere = f"; {count(others, 'problem')} elsewhere in {whole}" if others else ""
    return safe(f"{path} is valid{elsewhere}")
