"""`llmgw init`: a repository to begin with, and nothing of anybody's overwritten."""

import json
import pathlib
import subprocess
import tomllib

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from llmgw.catalog import schema
from llmgw.cli import fmt, init, main, validate
from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.errors import Failed

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty directory, with everything written into it."""
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(init.command, ["--ci", "github"], catch_exceptions=False)
    return tmp_path


def files(directory: pathlib.Path) -> dict[str, bytes]:
    """Every file below `directory`."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_what_is_written_is_valid_and_formatted(here: pathlib.Path) -> None:
    """The first `validate --strict`, `fmt --check` and `schema --check` of a new repository are green."""
    assert main.run(["validate", "--strict"]) == Exit.DONE
    assert main.run(["fmt", "--check"]) == Exit.DONE
    assert main.run(["schema", "--check", "schemas"]) == Exit.DONE


def test_every_file_can_be_read_by_what_reads_it(here: pathlib.Path) -> None:
    """Settings are JSON, TOML and YAML, and lead to files that are there."""
    settings = json.loads((here / ".vscode/settings.json").read_text())
    assert [(here / name).is_file() for name in settings["yaml.schemas"]] == [True]
    assert Client(None).server == tomllib.loads((here / "llmgw.toml").read_text())["server"]
    workflow = YAML(typ="safe").load((here / ".github/workflows/llmgw.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("file", [".github/workflows/llmgw.yml", ".pre-commit-config.yaml"])
def test_what_others_run_works(here: pathlib.Path, file: str) -> None:
    """Every command of llmgw in the workflow and in the hooks passes on the new repository."""
    commands = [
        line.partition("llmgw ")[2].split()
        for line in (here / file).read_text().splitlines()
        if line.lstrip(" -").startswith(("run: llmgw ", "entry: llmgw "))
    ]

    assert len(commands) == 3
    assert [main.run(command) for command in commands] == [Exit.DONE] * 3


def test_the_hooks_of_this_repository_are_the_hooks_of_a_new_one(here: pathlib.Path) -> None:
    """Who lets pre-commit install llmgw runs the same commands on the same files."""
    ours = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text())
    local = YAML(typ="safe").load((here / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    same = ("id", "name", "entry", "files", "pass_filenames")

    assert [{key: hook.get(key) for key in same} for hook in ours] == [
        {key: hook.get(key) for key in same} for hook in local
    ]
    assert {hook["language"] for hook in ours} == {"python"}


def test_nothing_is_overwritten(here: pathlib.Path) -> None:
    """A second run, after every file was changed, changes none of them."""
    for name in files(here):
        (here / name).write_text("mine\n")
    before = files(here)

    result = CliRunner().invoke(init.command, ["--ci", "github"], catch_exceptions=False)

    assert files(here) == before
    assert "wrote" not in result.stdout


def test_a_catalog_that_has_begun_gets_no_examples(tmp_path: pathlib.Path) -> None:
    """A model that nobody asked for would be a model that somebody applies."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "mine.yaml").write_text("kind: model\n")

    CliRunner().invoke(init.command, [str(tmp_path)], catch_exceptions=False)

    assert [name for name in files(tmp_path) if name.startswith("catalog/")] == ["catalog/mine.yaml"]
    assert (tmp_path / "schemas" / schema.FILE).is_file()
    assert not (tmp_path / ".github").exists()


def test_a_place_that_is_no_directory_is_said(tmp_path: pathlib.Path) -> None:
    """An error names the file that could not be written."""
    (tmp_path / "file").touch()

    result = CliRunner().invoke(init.command, [str(tmp_path / "file")])

    assert isinstance(result.exception, Failed)
    assert f"cannot write {tmp_path / 'file'}/" in str(result.exception)


def test_a_commit_away_from_a_clean_repository(here: pathlib.Path) -> None:
    """git tracks all of it: no file is of a kind that people ignore by habit."""
    subprocess.run(["git", "init", "-q", here], check=True)
    listed = ["git", "-C", here, "ls-files", "--others", "--exclude-standard"]
    tracked = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()

    assert sorted(tracked) == sorted(name for name in files(here) if not name.startswith(".git/"))


def test_examples_are_found_by_their_verbs(here: pathlib.Path) -> None:
    """`validate` and `fmt` see the files that were written, not an empty directory."""
    assert "1 model, 2 profiles" in CliRunner().invoke(validate.command, []).output
    assert "3 files: 0 would change" in CliRunner().invoke(fmt.command, ["--check"]).stderr
