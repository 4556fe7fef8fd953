"""An operator's day on real parts: a node is emptied, a log is followed to its end, a machine is lost and forgotten."""

import pathlib
from typing import Any

import httpx

from llmgw.cli.exits import Exit
from tests.support.stage import Stage
from tests.support.waiting import wait_for

TIMERS = {"min_ready": "200ms", "place_grace": "1s", "unreachable": "1500ms", "lost": "1h"}


def test_an_operators_day(tmp_path: pathlib.Path) -> None:
    """Drain to the end, previous logs, marks over a restart, a dead machine confirmed and forgotten."""
    with Stage(tmp_path, {"alpha": "I am alpha."}, timers=TIMERS) as stage:
        stage.server.gate.set()
        control = stage.control()
        agents = {name: stage.agent(name) for name in ("n1", "n2")}
        wait_for(lambda: ready(stage) == {"n1", "n2"}, "both nodes register", within=20.0)
        stage.profile()
        stage.model("alpha")
        stage.commit("one model")
        assert stage.inside("apply", "catalog", "--yes").returncode == Exit.DONE
        assert stage.inside("pause", "alpha", "--reason", "driver").returncode == Exit.DONE
        stage.profile(2048)
        stage.commit("shorter")
        assert stage.inside("apply", "catalog", "--yes", "--wait", "accepted").returncode == Exit.DONE
        shown = stage.inside("resume", "alpha")
        assert (shown.returncode, "+/-" in shown.stdout) == (Exit.DECLINED, True)
        stage.profile()
        stage.commit("as before")
        assert stage.inside("apply", "catalog", "--yes", "--wait", "accepted").returncode == Exit.DONE
        resumed = stage.inside("resume", "alpha")
        assert (resumed.returncode, resumed.stdout) == (Exit.DONE, "alpha is resumed\n")
        (before,) = told(stage, "replicas")
        (old,), first = before["nodes"], before["replica"]
        other = ({"n1", "n2"} - {old}).pop()

        follower = stage.processes.llmgw("follow", "logs", first, "-f", "--tail", "all")
        wait_for(lambda: b"slot" in follower.out.read_bytes(), "the log is followed", within=10.0)
        refused = stage.inside("node", "drain", old)
        assert refused.returncode == Exit.DECLINED
        assert "=>" in refused.stdout
        drained = stage.inside("node", "drain", old, "--reason", "memory", "--yes", "--wait")
        assert drained.returncode == Exit.DONE, drained.stderr
        assert "empty after" in drained.stderr
        wait_for(lambda: not follower.running, "following ends with the engine", within=10.0)
        assert "has ended" in follower.said()
        (log,) = (tmp_path / old).rglob(f"{first.replace('/', '%2F')}.0.log")
        assert follower.out.read_bytes() == log.read_bytes()
        piped = stage.inside("logs", "alpha", "--previous", "--tail", "all")
        assert piped.stdout.encode() == log.read_bytes()

        control.kill()
        control = stage.control()
        wait_for(lambda: ready(stage) == {"n1", "n2"}, "both nodes come back", within=20.0)
        (mark,) = told(stage, "marks")
        assert (mark["kind"], mark["name"], mark["reason"]) == ("draining", old, "memory")
        act = {"verb": "uncordon", "name": old}
        assert httpx.post(f"http://{stage.server_address}/v1/hands", json=act, trust_env=False).is_success

        agents[other].kill()
        wait_for(lambda: ready(stage) == {old}, "the other node is silent", within=10.0)
        (now,) = [row for row in told(stage, "replicas") if row["nodes"] == [other]]
        unreadable = stage.inside("logs", now["replica"])
        assert (unreadable.returncode, f"node {other} is Unreachable" in unreadable.stderr) == (
            Exit.FAILED,
            True,
        )
        assert stage.inside("node", "confirm-lost", other, "--yes").returncode == Exit.DONE
        wait_for(lambda: on(stage, old), "its replica is rebuilt", within=20.0)
        assert "somebody confirmed that it is lost" in stage.inside("why", other).stdout
        assert stage.inside("node", "forget", other, "--yes").returncode == Exit.DONE
        assert [row["name"] for row in told(stage, "nodes")] == [old]
        assert control.stop() == Exit.DONE


def told(stage: Stage, what: str) -> list[dict[str, Any]]:
    """The rows of the API; none while no control plane answers."""
    try:
        rows: list[dict[str, Any]] = httpx.get(
            f"http://{stage.server_address}/v1/{what}", trust_env=False, timeout=10.0
        ).json()
    except httpx.TransportError:
        return []
    return rows


def ready(stage: Stage) -> set[str]:
    """The nodes that are Ready."""
    return {row["name"] for row in told(stage, "nodes") if row["state"] == "Ready"}


def on(stage: Stage, node: str) -> bool:
    """Whether a replica is Ready there."""
    return any(row["state"] == "Ready" and row["nodes"] == [node] for row in told(stage, "replicas"))
