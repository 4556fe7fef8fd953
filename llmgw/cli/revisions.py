"""A catalog that stands in no directory: of a commit, or of a merge that nobody made yet; and who wrote a line.

Used by `plan`. Git's plumbing only: the work tree is neither read nor written, no ref moves. What cannot be
told (no such commit, a conflict) raises CatalogInvalid: there is no catalog to plan.
"""

import dataclasses
import datetime
import os
import pathlib
import subprocess
from collections.abc import Iterable, Mapping

from llmgw.catalog.load import load_files
from llmgw.catalog.model import Catalog
from llmgw.cli.uploads import Upload, upload_of
from llmgw.control.commits import files_of
from llmgw.control.trees import Unreadable, work_tree
from llmgw.errors import CatalogInvalid, Failed, LlmgwError
from llmgw.kit.children import git_environment, git_refusal
from llmgw.kit.text import count, safe
from llmgw.kit.units import show_seconds

PATIENCE = 30.0
MOST_BLAMED = 60
"""Lines of a plan of which the author is looked up: each is a call of git."""
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """What would stand after a merge, and what stands at the base before it: its files, None where it has no catalog."""

    upload: Upload
    base: Mapping[str, str] | None


def read_ref(path: pathlib.Path, ref: str) -> Upload:
    """The catalog at `path` as commit `ref` has it."""
    top, below = _where(path)
    commit = _commit(top, ref)
    tree = _tree(top, commit, below)
    if tree is None:
        raise CatalogInvalid(f"cannot plan {safe(ref)}: commit {commit[:12]} has no {below}/")
    return upload_of(_files(top, tree, below), commit=commit[:12], read=f"{commit[:7]} ({safe(ref)})")


def read_merged(path: pathlib.Path, ref: str, base: str) -> Compared:
    """The catalog at `path` as merging `ref` into `base` would leave it, and as `base` has it."""
    top, below = _where(path)
    # An unknown base is no answer to "what would it change": exit 3, as for a merge in conflict.
    ours, theirs = _commit(top, base, CatalogInvalid), _commit(top, ref)
    merged = _merge(top, ours, theirs, base, ref)
    after, before = _tree(top, merged, below), _tree(top, ours, below)
    if after is None:
        raise CatalogInvalid(f"cannot plan the merge of {safe(ref)} into {safe(base)}: it has no {below}/")
    said = f"{theirs[:7]} ({safe(ref)}) merged into {ours[:7]} ({safe(base)})"
    upload = upload_of(_files(top, after, below), commit=theirs[:12], read=said)
    return Compared(upload, None if before is None else _texts(_files(top, before, below)))


def base_catalog(files: Mapping[str, str]) -> Catalog:
    """The catalog of these files. Raises CatalogInvalid where the base itself is broken."""
    return load_files({name: text.encode() for name, text in files.items()})


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: data.decode(errors="replace") for name, data in files.items()}


def _where(path: pathlib.Path) -> tuple[pathlib.Path, str]:
    """The top of the work tree, and the catalog's path in it."""
    top = work_tree(path)
    if top is None:
        raise CatalogInvalid(f"cannot read a commit: {path} is in no git work tree")
    below = os.path.relpath(os.path.realpath(path), top)
    if below.startswith(".."):
        raise CatalogInvalid(f"cannot read a commit: {path} is not below {top}")
    return top, "" if below == "." else pathlib.PurePath(below).as_posix()


def _commit(top: pathlib.Path, ref: str, missing: type[LlmgwError] = Failed) -> str:
    done = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if done.returncode:
        if unsafe := git_refusal(done.stderr):
            raise missing("cannot read a commit: git reads no repository of another user", help=unsafe)
        raise missing(
            f"cannot plan: there is no commit {safe(ref)} here",
            help="fetch it: a shallow clone has few commits",
        )
    return done.stdout.strip()


def _tree(top: pathlib.Path, treeish: str, below: str) -> str | None:
    """The tree at `below`, None where there is none."""
    done = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{treeish}:{below}")
    return None if done.returncode else done.stdout.strip()


def _merge(top: pathlib.Path, ours: str, theirs: str, base: str, ref: str) -> str:
    """The tree that the merge would leave. Needs git 2.38."""
    done = _git(top, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs)
    tree, *conflicts = [part for part in done.stdout.split("\0") if part] or [""]
    if not done.returncode and tree:
        return tree
    where = f"the merge of {safe(ref)} into {safe(base)}"
    if done.returncode == 1 and conflicts:
        named = ", ".join(map(safe, conflicts[:_SHOWN]))
        raise CatalogInvalid(
            f"cannot plan {where}: {count(len(conflicts), 'file')} in conflict: {named}",
            help=f"merge or rebase onto {safe(base)} first",
        )
    words = " ".join(done.stderr.split())
    raise CatalogInvalid(f"cannot plan {where}: {safe(words[:300]) or 'git cannot merge them'}")


def _files(top: pathlib.Path, tree: str, below: str) -> Mapping[str, bytes]:
    try:
        return files_of(top, tree, below)
    except Unreadable as unreadable:
        raise CatalogInvalid(unreadable.said, help=unreadable.help) from unreadable


# Who wrote it --------------------------------------------------------------------------------------


def blame(
    places: Iterable[str], files: Mapping[str, str], path: pathlib.Path, ref: str, now: datetime.datetime
) -> dict[str, str]:
    """`FILE:LINE` → `dana, 3d ago: "longer context"`, for places whose line is in git as it stands in `files`.

    `ref` is empty for the work tree.
    """
    top = work_tree(path)
    if top is None:
        return {}
    found = {}
    for place in list(dict.fromkeys(places))[:MOST_BLAMED]:
        name, _, line = place.rpartition(":")
        if (
            name in files
            and line.isdecimal()
            and (said := _blamed(top, name, int(line), files[name], ref, now))
        ):
            found[place] = said
    return found


def _blamed(top: pathlib.Path, name: str, line: int, text: str, ref: str, now: datetime.datetime) -> str:
    # Files of the work tree are called as people reached them, those of a commit from the top.
    inside = name if ref else os.path.relpath(os.path.realpath(name), top)
    revision = (ref,) if ref else ()
    done = _git(top, "blame", "--porcelain", f"-L{line},{line}", *revision, "--", inside)
    if done.returncode:
        return ""
    words = dict(each.partition(" ")[::2] for each in done.stdout.splitlines() if not each.startswith("\t"))
    written = next((each[1:] for each in done.stdout.splitlines() if each.startswith("\t")), None)
    lines = text.splitlines()
    if line > len(lines) or written != lines[line - 1]:
        return ""
    author = words.get("author", "")
    if author == "Not Committed Yet":
        return "not committed yet"
    age = now.timestamp() - int(words.get("author-time", "0"))
    return safe(f'{author}, {show_seconds(max(0.0, age))} ago: "{words.get("summary", "")}"')


def _git(top: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "--no-optional-locks", "-C", str(top), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            env=git_environment(),
        )
    except subprocess.TimeoutExpired:
        raise CatalogInvalid(f"cannot plan: git {arguments[0]} took longer than {PATIENCE:.0f}s") from None
    except OSError as error:
        raise CatalogInvalid(
            f"cannot plan: git cannot be run: {error.strerror}", help="install git"
        ) from error
