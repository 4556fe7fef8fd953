"""The work of `llmgw unit`."""

import importlib.resources
import pathlib
import sys

import click


def run(name: str) -> None:
    """Print the unit."""
    click.echo(text(name, pathlib.Path(sys.executable).parent / "llmgw"), nl=False)


def text(name: str, program: pathlib.Path) -> str:
    """The unit of a process that `program` runs. systemd reads `%` and `$` in a path as something else."""
    template = importlib.resources.files("llmgw.cli") / "templates" / "systemd" / f"{name}.service"
    path = str(program).replace("%", "%%").replace("$", "$$")
    return template.read_text().replace("@LLMGW@", f'"{path}"' if " " in path else path)
