"""The work of `llmgw init`: each file of the templates, unless there is one already."""

import importlib.resources
import pathlib
from collections.abc import Iterator

import click

from llmgw.catalog import schema
from llmgw.errors import Failed
from llmgw.kit.text import safe

_ALWAYS = {
    "llmgw.toml": "llmgw.toml",
    ".vscode/settings.json": "vscode/settings.json",
    ".vscode/extensions.json": "vscode/extensions.json",
    ".pre-commit-config.yaml": "pre-commit-config.yaml",
}
_EXAMPLES = {
    name: name
    for name in (
        "catalog/models/llama-3.3-70b.yaml",
        "catalog/profiles/h100-tp4.yaml",
        "catalog/profiles/a100-tp8.yaml",
    )
}
_CI = {
    "github": {
        ".github/workflows/llmgw.yml": "github/workflows/llmgw.yml",
        ".github/CODEOWNERS": "github/CODEOWNERS",
    }
}
"""File of the new repository → its template."""


def run(directory: pathlib.Path, ci: str | None) -> None:
    """Write what is missing below `directory`, and say what was done."""
    for name, text in _wanted(directory, ci):
        try:
            done = "wrote" if _write(directory / name, text) else "kept "
        except OSError as error:
            raise Failed(f"cannot write {directory / name}: {error.strerror}") from error
        click.echo(f"{done} {safe(str(directory / name))}")
    click.echo("Next: llmgw validate, then git add and commit", err=True)


def _wanted(directory: pathlib.Path, ci: str | None) -> Iterator[tuple[str, str]]:
    """Every file that belongs there, with its text."""
    templates = importlib.resources.files("llmgw.cli") / "templates"
    begun = (directory / "catalog").exists() and any((directory / "catalog").iterdir())
    wanted = {**({} if begun else _EXAMPLES), **_ALWAYS, **(_CI[ci] if ci else {})}
    for name, template in wanted.items():
        yield name, templates.joinpath(template).read_text(encoding="utf-8")
    yield f"schemas/{schema.FILE}", schema.text()


def _write(path: pathlib.Path, text: str) -> bool:
    """Whether there was none. A link that leads nowhere is there too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
