"""Guards that a person has allowed: the plan says so, and blocks by the others alone."""

import pathlib

from llmgw.cli.exits import Exit
from tests.lab.guards import catalog
from tests.support.loopback import Loopback


def guarded(out: str) -> list[str]:
    """How each guard of a plan is shown, and what would let it pass."""
    return [
        line.split(":")[0].strip()
        for line in out.splitlines()
        if line.startswith(("blocked", "allowed", "  if that"))
    ]


def test_what_is_allowed_is_no_longer_called_blocked(tmp_path: pathlib.Path) -> None:
    """Above the question, in the refusal for the rest, and in the history of what was applied."""
    with Loopback(tmp_path, {"n0": 4}) as lab:
        assert lab.cli("apply", str(lab.write(catalog("a", "b", "c", "d"))), "--yes").code == Exit.DONE
        root = str(lab.write(catalog()))
        ran = lab.cli("apply", root)
        assert (ran.code, guarded(ran.out)) == (Exit.BLOCKED, ["blocked", "blocked", "if that is meant"])
        ran = lab.cli("apply", root, "--allow-empty")
        assert (ran.code, sorted(guarded(ran.out))) == (
            Exit.BLOCKED,
            ["allowed", "blocked", "if that is meant"],
        )
        assert "1 reason against it" in ran.err
        assert (
            ran.err.count("--allow-empty --allow-mass-stop 4")
            + ran.err.count("--allow-mass-stop 4 --allow-empty")
            == 1
        )
        ran = lab.cli("apply", root, "--allow-empty", "--allow-mass-stop", "4", "--yes")
        assert (ran.code, guarded(ran.out)) == (Exit.DONE, ["allowed", "allowed"])
        shown = lab.cli("history", "show", "2").out
        assert guarded(shown) == ["allowed", "allowed"]
        assert "blocked" not in shown
