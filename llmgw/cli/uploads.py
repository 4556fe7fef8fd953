"""The catalog as `plan` and `apply` upload it: checked here first, its bytes as they are, and its commit."""

import dataclasses
import getpass
import pathlib
import subprocess
from collections.abc import Mapping, Sequence

import click

from llmgw.catalog.diagnostics import Diagnostic, Invalid, as_text
from llmgw.catalog.load import check, snapshot
from llmgw.catalog.model import Catalog
from llmgw.errors import CatalogInvalid
from llmgw.kit.text import safe

GIT_SECONDS = 5.0


SHOWN_DIRTY = 5
"""Uncommitted files that a header names; the rest are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """Files by the name people see in messages; `commit` is empty outside git, marked when dirty.

    `read` says in words what was read; `dirty` are files that no commit has, with git's letter.
    """

    files: Mapping[str, str]
    commit: str
    who: str
    catalog: Catalog
    read: str = ""
    dirty: tuple[str, ...] = ()

    def body(self, **more: object) -> dict[str, object]:
        return {"files": dict(self.files), "commit": self.commit, "who": self.who, **more}


def read_upload(path: pathlib.Path) -> Upload:
    """The catalog below `path`. Prints every problem and raises CatalogInvalid where it has any error."""
    files, unreadable = snapshot(path, prefix=f"{path.as_posix().rstrip('/')}/")
    head = _git(path, "rev-parse", "--short=12", "HEAD").strip()
    # Git writes paths from the top of its work tree; people know them from where they stand.
    said = _git(path, "status", "--porcelain", "--untracked-files=all", "--", ".") if head else ""
    dirty = tuple(safe(line) for line in said.splitlines() if line.strip())
    commit = f"{head}-dirty" if dirty else head
    return upload_of(files, unreadable, commit=commit, read=_in_words(head, dirty), dirty=dirty)


def upload_of(
    files: Mapping[str, bytes],
    unreadable: Sequence[Diagnostic] = (),
    *,
    commit: str = "",
    read: str = "",
    dirty: tuple[str, ...] = (),
) -> Upload:
    """These files, checked. Prints every problem and raises CatalogInvalid where there is any error."""
    checked = check(files, unreadable)
    if checked.diagnostics:
        click.echo(as_text(checked.diagnostics), err=True)
    if checked.catalog is None:
        raise CatalogInvalid(Invalid(checked.diagnostics).said)
    texts = {name: data.decode() for name, data in files.items()}
    return Upload(texts, commit, getpass.getuser(), checked.catalog, read, dirty)


def _in_words(head: str, dirty: Sequence[str]) -> str:
    """`3f2a91c (HEAD, clean)`, or with what is not committed."""
    if not head:
        return "in no git repository"
    if not dirty:
        return f"{head[:7]} (HEAD, clean)"
    more = f", and {len(dirty) - SHOWN_DIRTY} more" if len(dirty) > SHOWN_DIRTY else ""
    named = ", ".join(" ".join(line.split()) for line in dirty[:SHOWN_DIRTY])
    return f"{head[:7]} (HEAD) + {len(dirty)} uncommitted: {named}{more}"


def _git(path: pathlib.Path, *arguments: str) -> str:
    """What git says, or nothing where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(path), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
