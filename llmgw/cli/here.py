"""What `llmgw doctor` finds where the command runs: its token, its shell, its git. Nobody else is asked."""

import pathlib
import subprocess
from collections.abc import Callable, Mapping

from llmgw.cli.checks import Finding
from llmgw.kit.children import git_environment, git_refusal

SHELLS = ("bash", "zsh", "fish")
SECONDS = 5.0
"""What git may take for a look."""


def findings_here(
    *,
    token: bool,
    environment: Mapping[str, str],
    directory: pathlib.Path,
    place: Callable[[str], pathlib.Path],
) -> list[Finding]:
    """Every finding. `token` = one is sent with each call; `directory` is where the command runs, and `place`
    where a shell looks for its completion.
    """
    sent = "one is sent with every call" if token else "none is sent"
    return [Finding("ok", "token", sent), _completion(environment, place), _git(directory)]


def _completion(environment: Mapping[str, str], place: Callable[[str], pathlib.Path]) -> Finding:
    shell = pathlib.PurePath(environment.get("SHELL", "")).name
    if shell not in SHELLS:
        return Finding(
            "ok", "completion", f"there is none for {shell or 'no shell'}: bash, zsh and fish have it"
        )
    path = place(shell)
    if path.is_file():
        return Finding("ok", "completion", f"installed for {shell}")
    said = f"not at {path}; a line in {shell}'s own files is not looked for"
    return Finding("warning", "completion", said, f"llmgw completion {shell} --install")


def _git(directory: pathlib.Path) -> Finding:
    """Whether git reads the repository that the command runs in: one of another user it refuses."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(directory), "rev-parse", "--is-inside-work-tree"],  # noqa: S607
            capture_output=True, text=True, timeout=SECONDS, check=False, env=git_environment(),
        )  # fmt: skip
    except FileNotFoundError:
        return Finding("warning", "git", "there is none: plans name no commit", "install git")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("warning", "git", f"it does not answer: {error}")
    if help_ := git_refusal(done.stderr):
        return Finding(
            "warning", "git", "it reads no repository of another user: plans name no commit", help_
        )
    inside = done.returncode == 0 and done.stdout.strip() == "true"
    return Finding("ok", "git", "it reads the repository here" if inside else "no repository is here")
