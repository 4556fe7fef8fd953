"""Files that people hand over and that no sound program wrote: a sentence, never a bug report."""

import json
import pathlib
from collections.abc import Callable

import pytest

from llmgw.cli import github, names, saved
from llmgw.cli.found import nearest
from llmgw.cli.main import run
from llmgw.cli.nodefile import read_node
from llmgw.control import snapshot
from llmgw.errors import Failed
from llmgw.kit.state_files import DEEPEST, from_json
from llmgw.planning.markdown import MARK, read_header

DEEP = "[" * 200_000
NESTED = '{"a":' * 500 + "1" + "}" * 500
"""So deep that JSON itself can be read, and nothing that walks through it."""

READERS: dict[str, Callable[[pathlib.Path], object]] = {
    "fleet": lambda path: snapshot.read(path.read_text(), str(path)),
    "plan": saved.load,
    "node": read_node,
    "event": lambda path: github.GitHub(
        {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "a/b", "GITHUB_EVENT_PATH": str(path)}
    ).pull_request(),
}
WRITTEN = {
    "never closed": DEEP,
    "an export": f'{{"kind": "llmgw.fleet", "format_version": "1.0", "given": {NESTED}}}',
    "a plan": f'{{"kind": "llmgw.plan", "format_version": "1.0", "upload": {{"files": {NESTED}}}}}',
    "half a character": '{"kind": "llmgw.plan", "format_version": "1.0", "upload": {"files": {"a": "\\ud800"}}}',
    "an event": f'{{"pull_request": {NESTED}}}',
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("written", WRITTEN)
def test_every_reader_says_what_it_cannot_read(tmp_path: pathlib.Path, reader: str, written: str) -> None:
    """Nested without end, or of halves of characters: the file is named."""
    path = tmp_path / "file"
    path.write_text(WRITTEN[written])
    with pytest.raises(Failed, match=r"^cannot ") as refused:
        READERS[reader](path)
    assert str(path) in refused.value.said
    assert len(refused.value.said) < 500


def test_a_saved_plan_of_half_characters(tmp_path: pathlib.Path) -> None:
    """Its files could not be uploaded as they are."""
    path = tmp_path / "plan"
    plan = {"digest": "x", "base": 1, "rows": [], "service": [], "upload": {"files": {"a.yaml": "\ud800"}}}
    path.write_text(json.dumps({"kind": "llmgw.plan", "format_version": "1.0", **plan}))
    with pytest.raises(Failed, match=r"as a saved plan: .*surrogates not allowed"):
        saved.load(path)


def test_an_export_without_a_zone(tmp_path: pathlib.Path) -> None:
    """How old it is cannot be told."""
    text = '{"kind": "llmgw.fleet", "format_version": "1.0", "at": "2026-01-01T00:00:00", "files": {}, "given": {}}'
    with pytest.raises(Failed, match="at: input should have timezone info"):
        snapshot.read(text, str(tmp_path))


def test_settings_of_a_clone(tmp_path: pathlib.Path) -> None:
    """TOML may nest as well as JSON."""
    (tmp_path / "llmgw.toml").write_text(f"a = {DEEP}")
    with pytest.raises(Failed, match="nested too deeply"):
        nearest(tmp_path)


def test_where_nothing_may_fail(tmp_path: pathlib.Path) -> None:
    """A TAB offers nothing then, and a comment is none of ours."""
    path = tmp_path / "names.json"
    path.write_text(DEEP)
    assert names._read(path) == {}
    assert read_header(f"<!-- {MARK} {'[' * 20_000}{']' * 20_000} -->") is None


def test_as_deep_as_may_be() -> None:
    """The limit is where it says: what llmgw writes has ten levels."""
    assert from_json("[" * DEEPEST + "]" * DEEPEST)
    with pytest.raises(ValueError, match="too deeply"):
        from_json("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))


def test_commands_end_with_a_sentence(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not with exit 70."""
    path = tmp_path / "plan"
    path.write_text(DEEP)
    assert run(["show", str(path)]) == 1
    assert "nested too deeply" in capsys.readouterr().err
