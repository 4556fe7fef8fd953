"""Hands on the fleet: where nobody can be asked, the command to paste is the whole of what was meant."""

import pathlib

from llmgw.cli.exits import Exit
from tests.lab.guards import catalog
from tests.support.loopback import Loopback


def test_what_is_to_be_pasted_keeps_its_reason(tmp_path: pathlib.Path) -> None:
    """And how long it lasts: without them another act would be done than the one that was shown."""
    with Loopback(tmp_path, {"n0": 2, "n1": 2}) as lab:
        assert lab.cli("apply", str(lab.write(catalog("a", "b"))), "--yes").code == Exit.DONE
        ran = lab.cli("node", "drain", "n0", "--reason", "new cards", "--for", "2h")
        assert ran.code == Exit.DECLINED
        assert (
            ran.err.splitlines()[-1] == "  help: llmgw node drain n0 --reason 'new cards' --for 7200s --yes"
        )
        ran = lab.cli("node", "drain", "n0")
        assert ran.err.splitlines()[-1] == "  help: llmgw node drain n0 --yes"
