"""The work of `llmgw rollback`: the bytes of an earlier revision, applied like any other."""

import dataclasses

from llmgw.cli.client import Client
from llmgw.cli.doing.apply import Asked, hand_over
from llmgw.cli.uploads import upload_of
from llmgw.errors import Failed


def run(number: int | None, asked: Asked, server: str | None) -> int:
    """Apply revision `number` again, None = the one before; returns the exit code."""
    client = Client(server)
    wanted = _before(client) if number is None else number
    kept = client.get("/v1/revision", number=wanted)["revision"]
    files = {name: text.encode() for name, text in kept["files"].items()}
    upload = upload_of(files, commit=kept["commit"], read=f"revision {wanted}")
    message = asked.message or f"rollback to revision {wanted}"
    return hand_over(client, upload, dataclasses.replace(asked, message=message), f"llmgw rollback {wanted}")


def _before(client: Client) -> int:
    """The newest revision that is another catalog's than the one that stands. Raises Failed."""
    rows = client.get("/v1/history", last=0, records=0)
    standing = next((row["digest"] for row in rows if row["stands"]), "")
    for row in rows:
        if row["digest"] != standing:
            return int(row["number"])
    raise Failed("cannot roll back: no earlier catalog is kept", help="llmgw history")
