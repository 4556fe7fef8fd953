"""`llmgw doctor` where it runs: each finding is about this machine alone, and says what would help."""

import pathlib
import shutil

import pytest

from llmgw.cli.checks import Finding
from llmgw.cli.doing import completion
from llmgw.cli.exits import Exit
from llmgw.cli.here import findings_here
from llmgw.cli.main import run
from tests.control.repository import Repository


def found(what: str, directory: pathlib.Path, shell: str = "", *, token: bool = False) -> Finding:
    """The finding about it."""
    every = findings_here(
        token=token, environment={"SHELL": shell}, directory=directory, place=completion.place
    )
    (one,) = [each for each in every if each.what == what]
    return one


def test_completion_is_looked_for_where_it_is_installed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing it is only worth knowing; another shell has none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for shell in ("bash", "zsh", "fish"):
        missing = found("completion", tmp_path, f"/usr/bin/{shell}")
        assert (missing.grade, missing.help) == ("warning", f"llmgw completion {shell} --install")
        completion.run(shell, install=True)
        assert found("completion", tmp_path, f"/usr/bin/{shell}").said == f"installed for {shell}"
    assert found("completion", tmp_path, "/bin/dash").grade == "ok"
    assert "none for no shell" in found("completion", tmp_path).said


def test_git_is_asked_about_the_repository_here(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, ours, another user's with the command that git asks for, and no git at all."""
    assert found("git", tmp_path).said == "no repository is here"
    repository = Repository(tmp_path / "fleet")
    assert found("git", repository.root).said == "it reads the repository here"
    git = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {git} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent))
    refused = found("git", repository.root)
    assert (refused.grade, refused.help) == (
        "warning",
        f"git config --global --add safe.directory {repository.root}",
    )
    wrapper.unlink()
    assert found("git", repository.root).help == "install git"


def test_a_doctor_that_reaches_nobody_looks_where_it_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And whether a token is sent: what is refused may be for want of one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMGW_API_TOKEN", f"llmgw-api_12345678_{'a' * 64}")
    assert run(["doctor", "--server", "127.0.0.1:9"]) == Exit.UNREACHABLE
    out = capsys.readouterr().out
    assert "one is sent with every call" in out
    assert "no repository is here" in out
    assert "aaaa" not in out
    assert "none is sent" in found("token", tmp_path).said
