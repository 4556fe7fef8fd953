"""The work of `llmgw show`."""

import json
import os
import pathlib

import click

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.doing.history import revision_lines
from llmgw.cli.exits import Exit
from llmgw.cli.saved import load
from llmgw.errors import Failed
from llmgw.kit.text import count, safe
from llmgw.planning.render import plan_lines


def run(what: str, output: str, server: str | None) -> int:
    """Print it; returns the exit code."""
    if what.isascii() and what.isdecimal():
        return _revision(int(what), output, server)
    path = pathlib.Path(what)
    if not os.path.lexists(path):
        said = f"cannot show {safe(what)}: it is no number of a revision, and there is no file {safe(str(path.absolute()))}"
        raise Failed(
            said, help="llmgw history lists revisions with their plans; llmgw plan --save FILE keeps a plan"
        )
    saved = load(path)
    if output != "text":
        click.echo(document("plan", json.loads(path.read_bytes()), output))
        return Exit.DONE
    commit = f"commit {saved.upload.commit}, " if saved.upload.commit else ""
    click.echo(safe(f"{path}  {commit}{count(len(saved.upload.files), 'file')}"))
    for line in plan_lines(saved.plan):
        click.echo(line)
    click.echo(f"Next: llmgw apply --plan {safe(what)}", err=True)
    return Exit.DONE


def _revision(number: int, output: str, server: str | None) -> int:
    kept = Client(server).get("/v1/revision", number=number)
    if output != "text":
        click.echo(document("revision", kept, output))
        return Exit.DONE
    for line in revision_lines(kept):
        click.echo(line)
    return Exit.DONE
