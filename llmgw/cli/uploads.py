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
from llmgw.cli.places import look_for_catalog
from llmgw.kit.children import git_environment, git_refusal
from llmgw.kit.text import safe

GIT_SECONDS = 5.0


NO_REPOSITORY = "in no git repository"
REFUSED = "commit unknown: git reads no repository of another user"
SHOWN_DIRTY = 5
"""Uncommitted files that a header names; the rest are counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """Files by the name people see in messages; `commit` is empty where none has any of them, marked when dirty.

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


def read_upload(path: pathlib.Path, verb: str) -> Upload:
    """The catalog below `path`. Prints every problem and raises CatalogInvalid where it has any error.

    Raises Failed where there is no such directory; `verb` is what cannot be done then.
    """
    look_for_catalog(path, verb)
    files, unreadable = snapshot(path, prefix=f"{path.as_posix().rstrip('/')}/")
    inside = _run_git(path, "rev-parse", "--is-inside-work-tree")
    if inside is None or inside.stdout.strip() != "true":
        unsafe = git_refusal(inside.stderr) if inside is not None else ""
        read = f"{REFUSED} ({safe(unsafe)})" if unsafe else NO_REPOSITORY
        return upload_of(files, unreadable, read=read)
    head = _git(path, "rev-parse", "--short=12", "HEAD").strip()
    if not head or not _has_any(path):
        none = tuple(f"?? {safe(name)}" for name in files)
        return upload_of(files, unreadable, read="not in git" if head else "no commit yet", dirty=none)
    dirty = _dirty(path)
    commit = f"{head}-dirty" if dirty else head
    return upload_of(files, unreadable, commit=commit, read=_in_words(head, dirty), dirty=dirty)


def _has_any(path: pathlib.Path) -> bool:
    """Whether HEAD has a file of the catalog."""
    return any(map(_is_ours, _git(path, "ls-tree", "-r", "-z", "--name-only", "HEAD", ".").split("\0")))


def _dirty(path: pathlib.Path) -> tuple[str, ...]:
    """What stands below `path` otherwise than in HEAD, and what of the catalog git is told to ignore."""
    # Git writes paths from the top of its work tree; people know them from where they stand.
    said = _git(path, "status", "--porcelain", "--untracked-files=all", "--ignored", "--", ".").splitlines()
    return tuple(safe(line) for line in said if line.strip() and (line[:2] != "!!" or _is_ours(line)))


def _is_ours(name: str) -> bool:
    return name.rstrip('"').lower().endswith((".yaml", ".yml"))


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
        refused = Invalid(checked.diagnostics)
        refused.help = ""  # the problems stand above it
        raise refused
    texts = {name: data.decode() for name, data in files.items()}
    return Upload(texts, commit, getpass.getuser(), checked.catalog, read, dirty)


def _in_words(head: str, dirty: Sequence[str]) -> str:
    """`3f2a91c (HEAD, clean)`, or with what is not committed."""
    if not dirty:
        return f"{head[:7]} (HEAD, clean)"
    more = f", and {len(dirty) - SHOWN_DIRTY} more" if len(dirty) > SHOWN_DIRTY else ""
    named = ", ".join(" ".join(line.split()) for line in dirty[:SHOWN_DIRTY])
    return f"{head[:7]} (HEAD) + {len(dirty)} uncommitted: {named}{more}"


def _git(path: pathlib.Path, *arguments: str) -> str:
    """What git says, or nothing where there is no git or no repository."""
    done = _run_git(path, *arguments)
    return done.stdout if done is not None and done.returncode == 0 else ""


def _run_git(path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            ["git", "--no-optional-locks", "-C", str(path), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
            env=git_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
