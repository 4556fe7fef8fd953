"""A catalog that is followed, from the command line: the options, the lines of `status`, and `llmgw up`."""

import pathlib
from typing import Any

import click
import pytest

from llmgw.cli.doing import serve, up
from llmgw.cli.doing.status import followed_lines
from llmgw.cli.exits import Exit
from llmgw.cli.main import run
from llmgw.control.settling import Pace
from tests.support.processes import Process
from tests.support.stage import Stage
from tests.support.waiting import wait_for

FOLLOWED: dict[str, Any] = {
    "said": "commits of HEAD below catalog", "watch": "commits", "sync": "auto", "tree": "3f2a91c0d1e2", "judged": True,
    "hold": None, "blind": None, "busy": "", "dirty": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    ["--watch files", "--catalog c --watch maybe", "--catalog c --watch files --ref main", "--settle soon"],
)
def test_options_that_contradict_each_other_are_usage(
    options: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started, and the option is named."""
    assert run(["serve", "--state-dir", str(tmp_path), *options.split()]) == Exit.USAGE
    assert options.split()[-2].removeprefix("--") in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_followed_where_nobody_says_how(tmp_path: pathlib.Path) -> None:
    """Off without a catalog; commits inside a work tree, else files; a person applies unless auto is said."""

    def ask(path: pathlib.Path | None, watch: Any = None) -> tuple[str, str, str] | None:
        following = serve.following(path, watch, "manual", None, Pace())
        return None if following is None else (following.watch, following.sync, following.ref)

    (tmp_path / "fleet" / ".git").mkdir(parents=True)
    assert ask(None) is None
    assert ask(None, "off") is None
    assert ask(tmp_path, "off") is None
    assert ask(tmp_path / "fleet" / "catalog") == ("commits", "manual", "HEAD")
    assert ask(tmp_path / "other") == ("files", "manual", "HEAD")
    assert ask(tmp_path / "fleet", "files") == ("files", "manual", "HEAD")
    with pytest.raises(click.UsageError, match="needs --catalog"):
        ask(None, "commits")


def test_status_is_loud_about_what_is_held() -> None:
    """What, since when, why with its places, and what to run; the uncommitted is named."""
    hold = {
        "why": "invalid", "said": "2 errors in 1 file", "age": 240.0, "next": "llmgw validate catalog",
        "details": ["catalog/x.yaml:14:5: E301 no profile is called `none`"],
    }  # fmt: skip
    blind = {"said": "cannot read the catalog: there is no commit main", "age": 5.0, "next": "mount it"}
    shown = {**FOLLOWED, "hold": hold, "blind": blind, "busy": "git is at work", "dirty": ["catalog/a.yaml"]}
    assert list(followed_lines(shown)) == [
        "follows commits of HEAD below catalog, sync auto",
        "HELD for 5s: cannot read the catalog: there is no commit main; mount it",
        "HELD 3f2a91c0d1e2 for 4m: 2 errors in 1 file",
        "  catalog/x.yaml:14:5: E301 no profile is called `none`",
        "  next: llmgw validate catalog",
        "waiting: git is at work",
        "not committed, so not applied: 1 file, catalog/a.yaml",
    ]


def test_pending_is_not_held() -> None:
    """With --sync manual a new commit is no alarm: it waits."""
    hold = {"why": "pending", "said": "starts 1", "age": 1.0, "next": "llmgw apply catalog", "details": []}
    assert list(followed_lines({**FOLLOWED, "hold": hold}))[1] == "PENDING 3f2a91c0d1e2 for 1s: starts 1"
    assert list(followed_lines(None)) == []


def test_up_follows_what_is_written(tmp_path: pathlib.Path) -> None:
    """An edit under `llmgw up` is taken by itself and said; a broken one is held and said; a signal ends it all."""
    with Stage(tmp_path, {"alpha": "I am alpha."}) as stage:
        stage.server.gate.set()
        stage.profile()
        stage.model("alpha")
        addresses = {
            "--control": stage.control_port,
            "--listen": stage.gateway_port,
            "--metrics": stage.metrics_port,
        }
        options = [word for name, port in addresses.items() for word in (name, f"127.0.0.1:{port}")]
        catalog = str(stage.repository / "catalog")
        process = stage.processes.llmgw("up", "up", catalog, "--state-dir", str(tmp_path / "up"), *options)

        def says(words: str) -> bool:
            process.must_run()
            return words in process.out.read_text()

        wait_for(lambda: says("Ctrl-C drains"), "it serves", within=40.0)
        before = stage.engines()
        stage.model("alpha", aliases=["first"])
        wait_for(lambda: says("revision 2  adopted"), "the edit is adopted", within=10.0)
        assert stage.json("models")["items"][0]["aliases"] == ["first"]
        stage.model("alpha", profiles=["none"])
        wait_for(lambda: says("E301 no profile is called `none`"), "the broken one is held", within=10.0)
        assert stage.json("status")["revision"] == 2
        assert stage.engines() == before != []
        assert process.stop(within=30.0) == Exit.DONE
        assert stage.engines() == []


def test_up_again_takes_nothing_away_without_a_person(tmp_path: pathlib.Path) -> None:
    """What was removed meanwhile is held and said, and goes on being served; an apply takes it. What grew is taken."""
    with Stage(tmp_path, {"alpha": "I am alpha.", "beta": "I am beta."}) as stage:
        stage.server.gate.set()
        stage.profile()
        stage.model("alpha")
        stage.model("beta")
        words = ("--state-dir", str(tmp_path / "up"), "--control", f"127.0.0.1:{stage.control_port}")
        words += (
            "--listen",
            f"127.0.0.1:{stage.gateway_port}",
            "--metrics",
            f"127.0.0.1:{stage.metrics_port}",
        )
        catalog = str(stage.repository / "catalog")

        def up(name: str) -> Process:
            process = stage.processes.llmgw(name, "up", catalog, *words)
            wait_for(lambda: "Ctrl-C drains" in process.out.read_text(), "it serves", within=40.0)
            return process

        assert up("first").stop(within=30.0) == Exit.DONE
        stage.remove("beta")
        again = up("second")
        said = again.out.read_text()
        assert "HELD" in said
        assert "model beta is removed" in said
        assert f"next: llmgw plan {catalog}, then llmgw apply {catalog}" in said
        assert [row["ready"] for row in stage.json("models")["items"]] == [1, 1]
        assert stage.json("status")["revision"] == 1
        assert again.stop(within=30.0) == Exit.DONE
        stage.model("beta", aliases=["second"])
        third = up("third")
        assert "HELD" not in third.out.read_text()
        assert stage.json("status")["revision"] == 2
        assert third.stop(within=30.0) == Exit.DONE


class Models:
    """A client that is only asked which models there are."""

    def __init__(self, *models: tuple[str, int, list[str]]) -> None:
        self._models = [
            {"model": model, "ready": ready, "aliases": aliases} for model, ready, aliases in models
        ]

    def get(self, _: str) -> list[dict[str, Any]]:
        return self._models


@pytest.mark.parametrize(
    ("models", "asked"),
    [
        ([("big", 0, ["default"]), ("small", 1, [])], "small"),
        ([("big", 0, []), ("small", 1, ["default"])], "default"),
        ([("big", 0, [])], ""),
        ([], ""),
    ],
)
def test_up_asks_a_model_that_serves(
    models: list[tuple[str, int, list[str]]],
    asked: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that fits nowhere is said by the apply; it ends nothing of what serves beside it."""
    names: list[str] = []
    monkeypatch.setattr(up, "_ask", lambda _, name: names.append(name) or "it is a chip")
    address = ("127.0.0.1", 1)
    up._introduce(Models(*models), up.Where(address, address, address, tmp_path, tmp_path))  # type: ignore[arg-type]
    assert names == [asked][: bool(asked)]
