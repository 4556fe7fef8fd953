"""The work of `llmgw completion`: click's own script, printed or put where the shell finds it."""

import os
import pathlib

import click
from click.shell_completion import get_completion_class

from llmgw.cli.main import cli
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic


def run(shell: str, install: bool) -> None:
    """Print or write the script. Raises Failed where it cannot be written."""
    found = get_completion_class(shell)
    assert found is not None  # the choice of the argument
    source = found(cli, {}, "llmgw", "_LLMGW_COMPLETE").source()
    if not install:
        click.echo(source)
        return
    path = place(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, source.encode())
    except OSError as error:
        raise Failed(
            f"cannot write {path}: {error.strerror}", help=f"llmgw completion {shell} > FILE"
        ) from error
    click.echo(f"wrote {path}; a new shell completes", err=True)


def place(shell: str) -> pathlib.Path:
    """Where the shell looks for completions of a user."""
    home = pathlib.Path.home()
    data = pathlib.Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "llmgw",
        "zsh": home / ".zfunc" / "_llmgw",
        "fish": config / "fish" / "completions" / "llmgw.fish",
    }[shell]
