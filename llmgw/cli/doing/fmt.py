"""The work of `llmgw fmt`: each file read, laid out, and replaced as a whole or left alone."""

import difflib
import os
import pathlib
import stat
from collections.abc import Iterator

import click

from llmgw.catalog import schema
from llmgw.catalog.builder import MAX_BYTES
from llmgw.catalog.diagnostics import Diagnostic, Invalid, as_text, summary
from llmgw.catalog.formatting import formatted
from llmgw.catalog.load import snapshot
from llmgw.cli.places import look_for_catalog
from llmgw.errors import CatalogInvalid, Failed, LlmgwError
from llmgw.kit.files import write_atomic
from llmgw.kit.text import count, safe


def run(paths: tuple[pathlib.Path, ...], check_only: bool, diff: bool) -> None:
    """Format, or say what would change. Raises what keeps a file from being formatted, when all were seen."""
    seen = changed = 0
    errors: list[LlmgwError] = []
    for file, data in _files(paths, errors):
        seen += 1
        try:
            new = formatted(file, data, _schema_of(pathlib.Path(file)))
        except LlmgwError as error:
            errors.append(error)
            continue
        if new != data:
            changed += 1
            _act(file, data, new, check_only, diff)
    _conclude(seen, changed, errors, check_only or diff)
    if check_only and changed:
        raise Failed(f"cannot accept {count(changed, 'file')}: not formatted", help="run llmgw fmt")


def _files(paths: tuple[pathlib.Path, ...], errors: list[LlmgwError]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        look_for_catalog(path, "format", file=True)
        if path.is_dir():
            files, unreadable = snapshot(path, prefix=f"{path}/")
            errors += [Invalid([problem]) for problem in unreadable]
            yield from files.items()
        elif path.is_file():
            with path.open("rb") as file:
                yield str(path), file.read(MAX_BYTES + 1)
        else:
            raise Failed(f"cannot format {path}: it is neither a file nor a directory")


def _schema_of(file: pathlib.Path) -> str:
    """The way from `file` to the schema kept nearest above it, or nothing."""
    directory = file.absolute().parent
    for above in (directory, *directory.parents):
        kept = above / "schemas" / schema.FILE
        if kept.is_file():
            return os.path.relpath(kept, directory)
    return ""


def _act(file: str, old: bytes, new: bytes, check_only: bool, diff: bool) -> None:
    if diff:
        for line in difflib.unified_diff(_lines(old), _lines(new), file, file, lineterm=""):
            click.echo(safe(line))
    elif check_only:
        click.echo(safe(file))
    else:
        _replace(pathlib.Path(file).resolve(), new)
        click.echo(f"formatted {safe(file)}")


def _lines(data: bytes) -> list[str]:
    return data.decode().splitlines()


def _replace(path: pathlib.Path, data: bytes) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        write_atomic(path, data, mode=mode)
        path.chmod(mode)  # what the umask took
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from error


def _conclude(seen: int, changed: int, errors: list[LlmgwError], looking: bool) -> None:
    """Say how it went; raises where a file could not be formatted."""
    done = "would change" if looking else "formatted"
    click.echo(f"{count(seen, 'file')}: {changed} {done}, {len(errors)} refused", err=True)
    problems: list[Diagnostic] = []
    for error in errors:
        if isinstance(error, Invalid):
            problems += error.diagnostics
        else:
            click.echo(f"error: {error}", err=True)
    if problems:
        click.echo(as_text(problems), err=True)
        raise CatalogInvalid(f"cannot format all files: {summary(problems)}")
    if errors:
        raise Failed(f"cannot format all files: {count(len(errors), 'file')} left as it was")
