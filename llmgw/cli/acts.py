"""Hands on the fleet: one act, handed over with who and why. Used by `node`, `pause`, `resume` and `retry`."""

import getpass
import shlex

import click

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.kit.text import safe


def act(verb: str, name: str, server: str | None, *, reason: str = "", seconds: float | None = None) -> int:
    """Do it; returns the exit code. `seconds` until it ends by itself."""
    do(Client(server), body(verb, name, reason, seconds))
    return Exit.DONE


def body(verb: str, name: str, reason: str, seconds: float | None) -> dict[str, object]:
    """The act as the control plane takes it."""
    return {"verb": verb, "name": name, "who": getpass.getuser(), "reason": reason, "seconds": seconds}


def again(command: str, reason: str, seconds: float | None = None) -> str:
    """`command` with what was said beside it, to be pasted where nobody can be asked."""
    words = ["--reason", shlex.quote(reason)] if reason else []
    words += ["--for", f"{seconds:g}s"] if seconds is not None else []
    return safe(" ".join([command, *words, "--yes"]))


def do(client: Client, asked: dict[str, object], expect: str = "") -> tuple[str, int]:
    """Do it and print what is so now. Returns the node's id or the model, and the last event before it.

    `expect` is the digest of the plan that was shown; empty = whatever it is now.
    """
    done = client.post("/v1/hands", {**asked, "expect": expect})
    click.echo(safe(done["said"]))
    return str(done["about"]), int(done["event"])
