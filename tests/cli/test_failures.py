"""What a script reads of a failure: with `-o json` stdout is one document, whatever went wrong."""

import json
import pathlib
from typing import Any

import pytest
import ruamel.yaml

from llmgw.cli import main
from llmgw.cli.doing import status
from llmgw.cli.exits import Exit
from llmgw.cli.failures import form_asked

NOBODY = "127.0.0.1:9"
BROKEN = "kind: model\nname: a\nprofiles: [x]\n"


@pytest.fixture
def catalog(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A valid catalog of nothing but a profile, and nobody who would take it."""
    root = tmp_path / "catalog"
    root.mkdir()
    (root / "small.yaml").write_text(
        "kind: profile\nname: small\nengine: llamacpp\ngpus_per_node: 0\ncpu: {cores: 1, memory: 1GiB}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMGW_SERVER", NOBODY)
    return root


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """All that stdout has, which is one document of a failure; stderr has the words for people."""
    out, err = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    assert set(found) == {"kind", "format_version", "exit_code", "message", "help", "where"}
    assert (found["kind"], found["format_version"]) == ("llmgw.error", "1.0")
    assert found["message"].partition("\n")[0] in err
    return found


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    "words",
    [
        "plan", "status", "replicas", "nodes", "models", "events", "history", "history show 1", "show 1", "why a",
        "engine-check n0", "gc", "gc --collect --yes", "token list", "token create --api",
    ],
)  # fmt: skip
def test_nobody_there_is_a_document(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb with a document has one of its failure: why, what would help, and the exit code."""
    assert main.run([*words.split(), "-o", "json"]) == Exit.UNREACHABLE
    found = document(capsys)
    assert found["exit_code"] == Exit.UNREACHABLE
    assert found["message"].startswith(f"cannot reach the control plane at {NOBODY}: ")
    assert "llmgw serve" in found["help"]


def test_each_kind_of_failure_is_a_document(
    catalog: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage, an invalid catalog with its places, what is nowhere, and a bug."""
    assert main.run(["plan", "-o", "json", "--detialed-exitcode"]) == Exit.USAGE
    found = document(capsys)
    assert (found["exit_code"], "--detialed-exitcode" in found["message"]) == (Exit.USAGE, True)
    assert main.run(["validate", "nowhere", "--output=json"]) == Exit.FAILED
    assert document(capsys)["message"].startswith("cannot check nowhere")
    (catalog / "a.yaml").write_text(BROKEN)
    assert main.run(["plan", "-ojson"]) == Exit.INVALID
    found = document(capsys)
    assert found["where"][0].startswith("catalog/a.yaml:")
    monkeypatch.setattr(status, "run", lambda *_: 1 / 0)
    assert main.run(["status", "-o", "json"]) == Exit.BUG
    found = document(capsys)
    pathlib.Path(found["help"].rpartition(" ")[2]).unlink()


def test_what_is_a_document_already_gets_no_second(
    catalog: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of problems, and who is of which release without its control plane: exactly one."""
    (catalog / "a.yaml").write_text(BROKEN)
    assert main.run(["validate", "-o", "json"]) == Exit.INVALID
    assert json.loads(capsys.readouterr().out)["kind"] == "llmgw.diagnostics"
    assert main.run(["version", "-o", "json"]) == Exit.UNREACHABLE
    assert json.loads(capsys.readouterr().out)["kind"] == "llmgw.version"
    assert main.run(["doctor", "-o", "json"]) == Exit.UNREACHABLE
    assert json.loads(capsys.readouterr().out)["kind"] == "llmgw.doctor"


@pytest.mark.usefixtures("catalog")
def test_a_failure_in_yaml_and_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The same document in the other form; for people stdout stays empty."""
    assert main.run(["nodes", "-o", "yaml"]) == Exit.UNREACHABLE
    found = ruamel.yaml.YAML(typ="safe", pure=True).load(capsys.readouterr().out)
    assert (found["kind"], found["exit_code"]) == ("llmgw.error", Exit.UNREACHABLE)
    assert main.run(["nodes"]) == Exit.UNREACHABLE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "environment", "form"),
    [
        ("nodes", {}, ""), ("nodes -o text", {}, ""), ("nodes -wo json", {}, "json"), ("nodes -o json -o yaml", {}, "yaml"),
        ("nodes --output json", {}, "json"), ("nodes -- -o json", {}, ""), ("nodes -o", {}, ""),
        ("nodes", {"LLMGW_NODES_OUTPUT": "json"}, "json"), ("nodes -o text", {"LLMGW_NODES_OUTPUT": "json"}, ""),
        ("engine-check n0", {"LLMGW_ENGINE_CHECK_OUTPUT": "json"}, "json"),
        ("token list", {"LLMGW_TOKEN_LIST_OUTPUT": "json"}, "json"), ("validate -o sarif", {}, ""), ("", {}, ""),
    ],
)  # fmt: skip
def test_which_document_a_command_line_asks_for(words: str, environment: dict[str, str], form: str) -> None:
    """As click reads it, also where click cannot."""
    assert form_asked(words.split(), environment) == form
