"""`llmgw doctor`: each fault is found by its own rule with what would help, and nothing else is."""

import datetime
from typing import Any

import pytest

from llmgw.cli.checks import Finding, findings
from llmgw.cli.doing.doctor import doctor_lines
from llmgw.cli.doing.version import version_lines

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
NODE = {"name": "gpu-a1", "state": "Ready", "seen": 1.0, "warnings": []}
FACTS: dict[str, Any] = {
    "cluster": "prod", "build": "1.2", "protocol": 1, "wall": NOW.isoformat(), "state_dir": "state",
    "agents": [{"name": "gpu-a1", "build": "1.2"}], "gateways": [{"name": "gw", "build": "1.2", "seen": 1.0}],
    "disk": {"free": 1 << 40, "total": 1 << 41}, "revision": 3, "loads": True, "followed": None, "fenced": "",
    "clocks": [{"kind": "agent", "name": "gpu-a1", "ahead": 0.3, "within": 0.01}],
    "alarms": [], "silent_after": 15.0, "nodes": [NODE], "cards": [], "engines": [], "unplaced": [], "failing": [],
}  # fmt: skip
HOLD = {"why": "invalid", "age": 240.0, "said": "1 error in 1 file", "next": "llmgw validate"}
FOLLOWED = {"said": "catalog", "tree": "3f2a91c", "blind": None, "hold": HOLD}


def found(facts: dict[str, Any], *, ours: str = "1.2", wall: datetime.datetime = NOW) -> list[Finding]:
    return findings(facts, ours=ours, wall=wall, took=0.02, server="127.0.0.1:7600")


def test_a_fleet_that_is_well_has_nothing_against_it() -> None:
    """Every rule was asked, and each says what it looked at."""
    assert {each.grade for each in found(FACTS)} == {"ok"}
    assert doctor_lines(found(FACTS))[-1] == "0 wrong, 0 worth knowing, 13 as it should be"


@pytest.mark.parametrize(
    ("fault", "what", "grade", "said"),
    [
        ({"files": "900 nodes need 1156 open files"}, "nodes", "wrong", "900 nodes need 1156"),
        ({"fenced": "a newer one commands"}, "control plane", "wrong", "a newer one commands"),
        ({"agents": [{"name": "a", "build": "1.1"}]}, "releases", "warning", "1 agent of another release than 1.2: a 1.1"),
        ({"revision": 0}, "catalog", "wrong", "no catalog is adopted"),
        ({"loads": False}, "catalog", "wrong", "revision 3 does not load"),
        ({"followed": FOLLOWED}, "catalog", "wrong", "3f2a91c is held for 4m: 1 error in 1 file"),
        ({"followed": {**FOLLOWED, "hold": {**HOLD, "why": "pending"}}}, "catalog", "warning", "is held"),
        ({"nodes": []}, "nodes", "wrong", "no node has registered"),
        ({"nodes": [{**NODE, "state": "Lost", "seen": None}]}, "nodes", "wrong", "gpu-a1 is Lost"),
        ({"nodes": [{**NODE, "warnings": ["a bad record"]}]}, "nodes", "warning", "gpu-a1: a bad record"),
        ({"cards": [{"node": "n", "gpu": "GPU-1", "said": "lost"}]}, "cards", "wrong", "n: GPU-1 is withdrawn: lost"),
        ({"engines": [{"profile": "p", "engine": "vllm"}]}, "engines", "wrong", "profile p needs vllm, which no node has"),
        ({"gateways": []}, "gateways", "warning", "none is connected"),
        ({"gateways": [{"name": "g", "build": "1.2", "seen": 60.0}]}, "gateways", "wrong", "g is silent for 1m"),
        ({"failing": [{"model": "m", "failures": 2, "reason": "exit 1"}]}, "models", "wrong", "m failed to start 2 times: exit 1"),
        ({"unplaced": ["m"]}, "models", "wrong", "m finds no place"),
        ({"disk": {"free": 5_000_000, "total": 1}}, "disk", "wrong", "5.0 MB free at state"),
        ({"alarms": ["dark"]}, "alarms", "wrong", "dark"),
    ],
)  # fmt: skip
def test_each_fault_is_found_by_its_rule(fault: dict[str, Any], what: str, grade: str, said: str) -> None:
    """One fault, one finding, in its own words; everything else stays as it should be."""
    against = [each for each in found({**FACTS, **fault}) if each.grade != "ok"]
    assert [(each.what, each.grade) for each in against] == [(what, grade)]
    assert said in against[0].said


def test_a_failure_that_is_over_is_history() -> None:
    """What serves as it should is not wrong for what it did minutes ago; what happened is told."""
    was = {"model": "m", "failures": 1, "reason": "killed", "said": "ended after 3m serving", "ago": 70.0}
    (told,) = [each for each in found({**FACTS, "recovered": [was]}) if each.what == "models"]
    assert (told.grade, told.said) == (
        "ok", "m serves as it should again; 1m10s ago it ended after 3m serving: killed",
    )  # fmt: skip


def test_a_dead_gateway_and_a_lost_node_say_what_it_means_and_what_helps() -> None:
    """Clients stand outside; the agent is looked at before its machine is given up."""
    facts = {**FACTS, "gateways": [{"name": "g", "build": "1.2", "seen": 60.0}]}
    (gateway,) = [each for each in found(facts) if each.what == "gateways"]
    assert "its clients are not served where it is down" in gateway.said
    (node,) = [
        each for each in found({**FACTS, "nodes": [{**NODE, "state": "Lost"}]}) if each.what == "nodes"
    ]
    assert node.help == (
        "systemctl status llmgw-agent on that machine; machine gone: llmgw node confirm-lost gpu-a1, "
        "then llmgw node forget gpu-a1"
    )


def test_releases_and_clocks_are_compared_with_ours() -> None:
    """This command may be older, and its machine's clock may be wrong: worth knowing, not wrong."""
    against = [
        each
        for each in found(FACTS, ours="1.1", wall=NOW + datetime.timedelta(minutes=5))
        if each.grade != "ok"
    ]
    assert [(each.grade, each.said) for each in against] == [
        ("warning", "release 1.1, the control plane is 1.2"),
        ("warning", "the control plane's is 5m behind this machine's: times of events mislead"),
    ]


def clock(name: str, ahead: float | None, within: float = 0.01) -> dict[str, Any]:
    return {"kind": "agent", "name": name, "ahead": ahead, "within": within}


@pytest.mark.parametrize(
    ("clocks", "grade", "said"),
    [
        ([clock("a", 1.9), clock("b", -1.9)], "ok", "2 of 2 peers told theirs, the control plane's agrees"),
        ([clock("a", 3.4, 1.5)], "ok", "1 of 1 peer told theirs, the control plane's agrees"),
        ([clock("a", 0.0), clock("b", None)], "ok", "1 of 2 peers told theirs, the control plane's agrees"),
        ([clock("a", None)], "ok", "no agent or gateway told what its own shows"),
        ([], "ok", "nobody is connected whose clock could be asked"),
        (None, "ok", "the control plane did not tell what they show"),
        ([clock("a", 3.0), clock("b", 0.1)], "warning", "1 of 2 clocks differs from the control plane's: a 3s ahead"),
        ([clock("a", 185.0), clock("b", -40.0), clock("c", None), clock("d", 0.0)], "warning",
         "2 of 3 clocks differ from the control plane's: a 3m5s ahead, b 40s behind"),
    ],
)  # fmt: skip
def test_clocks_of_peers_are_compared(clocks: list[dict[str, Any]] | None, grade: str, said: str) -> None:
    """Two seconds and more, less what the way took; who did not say, and a release that asks nobody, are not wrong."""
    (row,) = (each for each in found({**FACTS, "clocks": clocks}) if each.what == "clocks")
    assert (row.grade, row.said) == (grade, said)


def test_where_every_clock_differs_the_control_planes_is_named_first() -> None:
    """One machine is more likely wrong than all of the others."""
    for clocks, where in (
        ([clock("a", 60.0), clock("b", 61.0)], "synchronise the control plane's machine, or all others"),
        ([clock("a", 60.0), clock("b", 0.0)], "synchronise them"),
        ([clock("a", 60.0)], "synchronise them"),
    ):
        (row,) = (each for each in found({**FACTS, "clocks": clocks}) if each.what == "clocks")
        assert row.help.startswith(where), row


def test_no_disk_that_could_be_asked_is_no_full_disk() -> None:
    """Absence is not a value."""
    assert {each.grade for each in found({**FACTS, "disk": None})} == {"ok"}


def test_versions_mark_what_differs() -> None:
    """A row a process; whoever did not say is not called different."""
    told = {
        "cluster": "prod", "build": "1.2",
        "agents": [{"name": "a", "build": "1.1"}, {"name": "old", "build": ""}],
        "gateways": [{"name": "gw", "build": "1.2"}],
    }  # fmt: skip
    assert version_lines("1.2", told) == [
        "WHAT           NAME  RELEASE",
        "this command   -     1.2",
        "control plane  prod  1.2",
        "agent          a     1.1        ! differs",
        "agent          old   not known",
        "gateway        gw    1.2",
    ]
    assert version_lines("1.2", None) == ["llmgw 1.2"]
