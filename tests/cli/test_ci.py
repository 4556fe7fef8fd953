"""`llmgw ci` against a stand-in for GitHub: one comment of ours, and only what was reviewed whole."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from llmgw.cli import main
from llmgw.cli.exits import Exit
from llmgw.planning.markdown import Header, header_line
from tests.support import github

PLAN = Header("prod", "ab" * 32, "3f2a91c")


@pytest.fixture
def hub(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[github.StandIn]:
    """The stand-in, and the environment of a workflow on pull request 7."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    with github.serving(github.StandIn()) as found:
        for name, value in {
            "GITHUB_API_URL": found.address,
            "GITHUB_TOKEN": "ours",
            "GITHUB_REPOSITORY": found.repository,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_SHA": "c0ffee",
            "no_proxy": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield found


def posts(tmp_path: pathlib.Path, header: Header, text: str = "hello") -> int:
    """Post a comment with this header."""
    path = tmp_path / "plan.md"
    path.write_text(f"{header_line(header)}\n{text}\n")
    return main.run(["ci", "comment", str(path)])


def test_one_comment_a_cluster_is_kept_current(tmp_path: pathlib.Path, hub: github.StandIn) -> None:
    """The second push rewrites the first comment; another cluster has its own; others' are left alone."""
    hub.says(7, "mallory", header_line(PLAN))
    for _ in range(150):
        hub.says(7, "talker", "a page and more of other words")
    assert posts(tmp_path, PLAN, "one") == Exit.DONE
    assert posts(tmp_path, PLAN, "two") == Exit.DONE
    assert posts(tmp_path, Header("staging", "cd" * 32, "3f2a91c")) == Exit.DONE
    ours = [each.body for each in hub.comments[7] if each.author == github.BOT]
    assert [body.splitlines()[1] for body in ours] == ["two", "hello"]
    assert hub.comments[7][0].body == header_line(PLAN)


def test_a_person_s_token_writes_as_that_person(
    tmp_path: pathlib.Path, hub: github.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose comment is rewritten follows from the token, not from a name that is written down."""
    hub.tokens["dana's"] = "dana"
    monkeypatch.setenv("GITHUB_TOKEN", "dana's")
    hub.says(7, github.BOT, header_line(PLAN))
    assert posts(tmp_path, PLAN) == Exit.DONE
    assert [each.author for each in hub.comments[7]] == [github.BOT, "dana"]


def test_what_was_reviewed_is_printed(hub: github.StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest in the newest comment of ours on the pull request that the commit merged."""
    hub.merged[7] = "c0ffee"
    hub.says(7, "mallory", header_line(Header("prod", "00" * 32, "x")))
    hub.says(7, github.BOT, header_line(PLAN))
    assert main.run(["ci", "plan-id"]) == Exit.DONE
    assert capsys.readouterr().out == f"{'ab' * 32}\n"


@pytest.mark.parametrize(
    ("bodies", "merged", "said"),
    [
        ([], True, "no comment of ours"),
        ([(github.BOT, "no header")], True, "no comment of ours"),
        ([("mallory", header_line(PLAN))], True, "no comment of ours"),
        ([(github.BOT, f"quoting:\n{header_line(PLAN)}")], True, "no comment of ours"),
        (
            [(github.BOT, header_line(Header("prod", "ab" * 32, "x", truncated=True)))],
            True,
            "nobody saw it whole",
        ),
        ([(github.BOT, header_line(PLAN))], False, "0 merged pull requests"),
        (
            [(github.BOT, header_line(PLAN)), (github.BOT, header_line(Header("b", "cd" * 32, "x")))],
            True,
            "comments of several clusters",
        ),
    ],
)
def test_what_nobody_reviewed_whole_is_not_approved(
    bodies: list[tuple[str, str]],
    merged: bool,
    said: str,
    hub: github.StandIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 4, nothing on stdout that an apply could take for a digest."""
    if merged:
        hub.merged[7] = "c0ffee"
    for author, body in bodies:
        hub.says(7, author, body)
    assert main.run(["ci", "plan-id"]) == Exit.BLOCKED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_what_is_no_plan_is_not_posted(tmp_path: pathlib.Path, hub: github.StandIn) -> None:
    """A file without the header would make a second comment each time."""
    path = tmp_path / "plan.md"
    path.write_text("### hello\n")
    assert main.run(["ci", "comment", str(path)]) == Exit.FAILED
    assert not hub.comments


def test_a_refusal_of_github_is_a_sentence_without_the_token(
    tmp_path: pathlib.Path,
    hub: github.StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong token, no token, nobody there."""
    monkeypatch.setenv("GITHUB_TOKEN", "stolen")
    assert posts(tmp_path, PLAN) == Exit.NOT_ALLOWED
    monkeypatch.delenv("GITHUB_TOKEN")
    assert posts(tmp_path, PLAN) == Exit.FAILED
    monkeypatch.setenv("GITHUB_TOKEN", "ours")
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    assert posts(tmp_path, PLAN) == Exit.FAILED
    said = capsys.readouterr().err
    assert "Bad credentials" in said
    assert "GITHUB_TOKEN is not set" in said
    assert "cannot reach GitHub" in said
    assert "stolen" not in said
