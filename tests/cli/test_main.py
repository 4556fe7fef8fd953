"""The front of the CLI: exit codes are a contract, help is quick, no error shows a traceback."""

import pathlib
import subprocess
import sys

import click
import pytest

from llmgw import errors
from llmgw.cli import main
from llmgw.cli.exits import Exit, of_error

CODES = {
    errors.Failed: 1,
    errors.CatalogInvalid: 3,
    errors.Blocked: 4,
    errors.Stale: 5,
    errors.Declined: 6,
    errors.Unreachable: 69,
    errors.NotAllowed: 77,
    errors.LlmgwError: 1,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_every_error_has_its_exit_code(kind: type[errors.LlmgwError], code: int) -> None:
    """Scripts depend on these numbers: they do not move."""
    assert of_error(kind("cannot do it")) == code


def test_the_numbers_of_the_contract() -> None:
    """Names and numbers of every exit code, as documented."""
    assert {code.name: code.value for code in Exit} == {
        "DONE": 0, "FAILED": 1, "CHANGES": 2, "INVALID": 3, "BLOCKED": 4, "STALE": 5, "DECLINED": 6,
        "FAIL_ON": 7, "TIMEOUT": 8, "USAGE": 64, "UNREACHABLE": 69, "BUG": 70, "NOT_ALLOWED": 77,
        "INTERRUPTED": 130,
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [["paln"], ["plan", "--detialed-exitcode"], []])
def test_a_typo_is_usage_and_not_changes(arguments: list[str]) -> None:
    """click would exit 2, which reads as "changes"."""
    assert main.run(arguments) in (Exit.USAGE, Exit.DONE if not arguments else Exit.USAGE)


@pytest.mark.parametrize("verb", ["serve", "agent", "gateway", "up"])
@pytest.mark.parametrize("place", ["/proc/nope/x", "/dev/null/x"])
def test_a_state_directory_that_cannot_be_is_a_sentence(
    verb: str, place: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No bug and no traceback: what cannot be used, why, and what would help."""
    (tmp_path / "a.yaml").write_text(
        "kind: profile\nname: a\nengine: llamacpp\ngpus_per_node: 0\ncpu: {cores: 1, memory: 1GiB}\n"
    )
    path = [str(tmp_path)] if verb == "up" else []
    assert main.run([verb, *path, "--state-dir", place]) == Exit.FAILED
    said = capsys.readouterr().err
    assert f"cannot use {place} for state: " in said
    assert "--state-dir" in said


def test_nobody_there_is_69(capsys: pytest.CaptureFixture[str]) -> None:
    """No control plane: one sentence, what would help, and its own code."""
    assert main.run(["status", "--server", "127.0.0.1:9"]) == Exit.UNREACHABLE
    said = capsys.readouterr().err
    assert said.startswith("error: cannot reach the control plane at 127.0.0.1:9")
    assert "llmgw serve" in said


def test_an_invalid_catalog_is_3(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems are printed before anybody is asked."""
    (tmp_path / "a.yaml").write_text("kind: model\nname: a\nprofiles: [x]\n")
    assert main.run(["plan", str(tmp_path), "--server", "127.0.0.1:9"]) == Exit.INVALID
    assert "a.yaml:" in capsys.readouterr().err


def test_a_bug_leaves_a_file_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever we did not think of becomes exit 70 and a file to send."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["status"]) == Exit.BUG
    said = capsys.readouterr().err
    assert "Traceback" not in said
    path = pathlib.Path(said.rsplit(" ", 1)[-1].strip())
    assert "ZeroDivisionError" in path.read_text()
    path.unlink()


@pytest.mark.parametrize("verb", ["", *main.VERBS])
def test_help_imports_nothing_heavy(verb: str) -> None:
    """`--help` of every verb, and completion, load no HTTP, no YAML, no validation, no event loop."""
    heavy = ["httpx", "pydantic", "ruamel", "rich", "h2", "asyncio", "psutil", "uvloop", "subprocess"]
    code = (
        f"import sys; from llmgw.cli import main; main.run([*{verb.split()}, '--help']);"
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith(f"Usage: llmgw {verb}".rstrip())


def test_a_verb_and_its_work_have_one_name() -> None:
    """Each verb finds what does its work under its own name, and nothing there is out of use."""
    doing = pathlib.Path(main.__file__).parent / "doing"
    assert {path.stem.replace("_", "-") for path in doing.glob("*.py")} - {"--init--", "rows"} == set(
        main.VERBS
    )


@pytest.mark.parametrize("verb", list(main.VERBS))
def test_every_verb_loads_and_explains_itself(verb: str) -> None:
    """Each verb in the list exists, and its help begins with a sentence."""
    command = main.cli.get_command(click.Context(main.cli), verb)
    assert command is not None
    assert command.help
