"""An apply as scripts follow it: `-o jsonl` is a document a step on stdout, and all of the text is on stderr."""

import json
import pathlib
from typing import Any

from llmgw.cli.exits import Exit
from llmgw.cli.lines import Lines
from llmgw.fleet.shard import Progress
from llmgw.planning.screen import ReplicaRow
from tests.lab.guards import catalog
from tests.support.loopback import Loopback, Ran


def told(ran: Ran) -> list[dict[str, Any]]:
    """Every line of stdout."""
    return [json.loads(line) for line in ran.out.splitlines()]


def test_an_apply_is_told_step_by_step(tmp_path: pathlib.Path) -> None:
    """The plan, what stands, what begins and ends, and the exit code; rollback and attach speak alike."""
    with Loopback(tmp_path, {"n0": 4}) as lab:
        ran = lab.cli("apply", str(lab.write(catalog("a"))), "--yes", "-o", "jsonl")
        lines = told(ran)
        assert ran.code == Exit.DONE
        assert {(each["kind"], each["format_version"]) for each in lines} == {("llmgw.apply", "1.0")}
        kinds = [each["type"] for each in lines]
        assert (kinds[:2], kinds[-1]) == (["plan", "accepted"], "summary")
        assert {"action_start", "action_done"} <= set(kinds)
        assert lines[0]["plan"]["kind"] == "llmgw.plan"
        assert lines[0]["message"].startswith("Plan p-")
        assert (lines[1]["revision"], lines[1]["new"]) == (1, True)
        done = next(each for each in lines if each["type"] == "action_done")
        assert done["event"]["said"] == "rank 0 ready"
        assert (lines[-1]["exit_code"], lines[-1]["revision"]) == (Exit.DONE, 1)
        assert lines[-1]["message"].startswith("done in ")
        assert "Plan p-" in ran.err
        assert "rank 0 ready" in ran.err
        assert lab.cli("apply", str(lab.write(catalog("a", "b"))), "--yes").code == Exit.DONE
        ran = lab.cli("rollback", "--yes", "--wait", "accepted", "-o", "jsonl")
        assert [each["type"] for each in told(ran)] == ["plan", "accepted"]
        assert [each["type"] for each in told(lab.cli("apply", "--attach", "1", "-o", "jsonl"))] == [
            "summary"
        ]


def test_an_apply_that_fails_ends_with_its_document(tmp_path: pathlib.Path) -> None:
    """Refused by a guard, declined, and what fits nowhere: the last line has the exit code."""
    with Loopback(tmp_path, {"n0": 1}) as lab:
        root = str(lab.write(catalog("a")))
        ran = lab.cli("apply", root, "-o", "jsonl")
        assert (ran.code, [each["kind"] for each in told(ran)]) == (
            Exit.DECLINED,
            ["llmgw.apply", "llmgw.error"],
        )
        assert told(ran)[-1]["exit_code"] == Exit.DECLINED
        assert lab.cli("apply", root, "--yes").code == Exit.DONE
        ran = lab.cli("apply", str(lab.write(catalog())), "--yes", "-o", "jsonl")
        assert (ran.code, told(ran)[-1]["exit_code"]) == (Exit.BLOCKED, Exit.BLOCKED)
        ran = lab.cli(
            "apply", str(lab.write(catalog("a", "b"))), "--yes", "--timeout", "100ms", "-o", "jsonl"
        )
        assert (ran.code, told(ran)[-1]["exit_code"]) == (Exit.TIMEOUT, Exit.TIMEOUT)
        assert told(ran)[-1]["type"] == "summary"


def test_progress_is_told_in_bytes(capsys: Any) -> None:
    """With its length where that is known; what makes none is no line, and to people nothing is said."""
    row = ReplicaRow("a/ab", "a", "Fetching", 0, 1, ("n0",), progress=Progress("c", 5, None, 0, 0.0))
    Lines(on=True).moves(row)
    Lines(on=True).moves(ReplicaRow("a/cd", "a", "Starting", 0, 1, ("n0",)))
    Lines().moves(row)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["type"], line["replica"], line["bytes"], line["total"]) == (
        "action_progress",
        "a/ab",
        5,
        None,
    )


def test_lists_are_documents_in_yaml_too(tmp_path: pathlib.Path) -> None:
    """`history`, one of its revisions and `gc`, like every other list."""
    with Loopback(tmp_path, {"n0": 1}) as lab:
        assert lab.cli("apply", str(lab.write(catalog("a"))), "--yes").code == Exit.DONE
        for words, kind in (
            ("history", "history"),
            ("history show 1", "revision"),
            ("show 1", "revision"),
            ("gc", "gc"),
        ):
            ran = lab.cli(*words.split(), "-o", "yaml")
            assert (ran.code, ran.out.startswith(f"---\nkind: llmgw.{kind}\n")) == (Exit.DONE, True), ran
