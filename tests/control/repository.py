"""A git repository on this disk for tests: real git, a fixed author, nothing of the user's configuration."""

import os
import pathlib
import subprocess
from collections.abc import Mapping


class Repository:
    """A work tree with a catalog in it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.catalog = root / "catalog"
        self.catalog.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main", ".")

    def git(self, *arguments: str, check: bool = True) -> str:
        """One git command in the work tree; its output."""
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost", "-c", "commit.gpgsign=false")
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["git", *who, *arguments],
            cwd=self.root,
            env={**os.environ, **alone},
            check=check,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of the catalog, without committing them."""
        for name, text in files.items():
            path = self.catalog / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: Mapping[str, str] | None = None, message: str = "a change") -> str:
        """Commit the whole catalog with `files` written; the commit, as people abbreviate it."""
        self.write(files or {})
        self.git("add", "--all", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")[:12]
