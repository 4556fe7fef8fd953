"""An apply as JSON lines on stdout, for scripts: `apply -o jsonl`. Used by `apply`, `rollback` and `following`.

Each line is a document of kind `llmgw.apply` with a `type` and a `message`; of a type that a script does not know,
the message is enough. What people read is on stderr then.
"""

from collections.abc import Collection, Mapping
from typing import Any

import click

from llmgw.cli.moving import mark
from llmgw.planning.screen import ReplicaRow

_TYPES: Mapping[str, str] = {"ok": "action_done", "FAIL": "action_failed"}


class Lines:
    """Where the lines go: to stdout, or nowhere."""

    def __init__(self, *, on: bool = False) -> None:
        self.on = on

    def say(self, kind: str, message: str, **content: Any) -> None:
        """A line of the type `kind`."""
        if self.on:
            from llmgw.cli.documents import document

            click.echo(document("apply", {"type": kind, "message": message, **content}, "json", line=True))

    def happened(self, entry: Mapping[str, Any], failed: Collection[str]) -> None:
        """An entry of the journal: what began, what ended well or not, or anything else."""
        begun = "action_start" if entry["kind"] == "action" else "event"
        kind = _TYPES.get(mark(entry, failed), begun)
        self.say(kind, f"{entry['about']} {entry['said']}", event=entry)

    def moves(self, row: ReplicaRow) -> None:
        """A replica whose weights come: bytes so far, and of how many where that is known."""
        if row.progress is not None:
            got, total = row.progress.received, row.progress.total
            self.say(
                "action_progress", f"{row.replica} {row.state}", replica=row.replica, bytes=got, total=total
            )


OFF = Lines()
