"""The catalog as `plan` and `apply` upload it: checked here first, its bytes as they are, and its commit."""

import dataclasses
import getpass
import pathlib
import subprocess
from collections.abc import Mapping

import click

from llmgw.catalog.diagnostics import Invalid, as_text
from llmgw.catalog.load import check, snapshot
from llmgw.errors import CatalogInvalid

GIT_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """Files by the name people see in messages; `commit` is empty outside git, marked when dirty."""

    files: Mapping[str, str]
    commit: str
    who: str

    def body(self, **more: str) -> dict[str, object]:
        return {"files": dict(self.files), "commit": self.commit, "who": self.who, **more}


def read_upload(path: pathlib.Path) -> Upload:
    """The catalog below `path`. Prints every problem and raises CatalogInvalid where it has any error."""
    files, unreadable = snapshot(path, prefix=f"{path.as_posix().rstrip('/')}/")
    checked = check(files, unreadable)
    if checked.diagnostics:
        click.echo(as_text(checked.diagnostics), err=True)
    if checked.catalog is None:
        raise CatalogInvalid(Invalid(checked.diagnostics).said)
    return Upload({name: data.decode() for name, data in files.items()}, _commit(path), getpass.getuser())


def _commit(path: pathlib.Path) -> str:
    head = _git(path, "rev-parse", "--short=12", "HEAD")
    if not head:
        return ""
    dirty = _git(path, "status", "--porcelain", "--", ".")
    return f"{head}-dirty" if dirty else head


def _git(path: pathlib.Path, *arguments: str) -> str:
    """One line of git's, or nothing where there is no git or no repository."""
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
    return done.stdout.strip() if done.returncode == 0 else ""
