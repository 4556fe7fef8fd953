"""The systemd units and what a service says to systemd; and the warning where a restart would kill engines."""

import asyncio
import configparser
import os
import pathlib
import shutil
import socket
import subprocess

import pytest

from llmgw.agent import unit as agent_unit
from llmgw.agent.unit import kill_mode, unit_of, warning
from llmgw.cli.doing import unit
from llmgw.kit import systemd
from tests.agent.test_probe import script
from tests.support.ports import free_block
from tests.support.processes import LLMGW, Processes

NAMES = ("agent", "serve", "gateway")
ANALYZE = shutil.which("systemd-analyze")
OURS = "/system.slice/llmgw-agent.service"


def verified(path: pathlib.Path) -> str:
    """What systemd itself has against a unit."""
    assert ANALYZE is not None
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    return done.stderr.strip() or f"exit {done.returncode}" * bool(done.returncode)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: pathlib.Path, name: str) -> None:
    """As it would be installed; and it does find a key that does not exist."""
    path = tmp_path / f"llmgw-{name}.service"
    path.write_text(unit.text(name, LLMGW))
    assert verified(path) == ""
    path.write_text(unit.text(name, LLMGW).replace("WatchdogSec", "WatchdogSecs"))
    assert "WatchdogSecs" in verified(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_says_what_the_processes_rely_on(name: str) -> None:
    """All tell that they are up and alive; the agent's ends nothing but the agent."""
    parsed = configparser.ConfigParser(strict=True, interpolation=None)
    parsed.read_string(unit.text(name, pathlib.Path("/opt/my llmgw/100%/llmgw")))
    service = dict(parsed["Service"])
    assert (service["type"], service["notifyaccess"], service["restart"]) == ("notify", "main", "always")
    assert int(service["watchdogsec"]) > 0
    assert service["execstart"] == f'"/opt/my llmgw/100%%/llmgw" {name}'
    agent = {"killmode": "process", "delegate": "yes", "oompolicy": "continue"}
    assert {key: value for key, value in service.items() if key in agent} == (
        agent if name == "agent" else {}
    )


def test_a_service_says_that_it_is_up_alive_and_going(tmp_path: pathlib.Path) -> None:
    """The real agent, heard at the socket where systemd would listen: READY once, beats, then STOPPING."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, Processes(tmp_path) as processes:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(20)
        ports = free_block(50)
        agent = processes.llmgw(
            "agent",
            "agent",
            "--control",
            "127.0.0.1:1",
            "--metrics",
            "off",
            "--ports",
            f"{ports.start}-{ports.stop - 1}",
            "--state-dir",
            str(tmp_path / "state"),
            env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
        )
        heard = []
        while heard.count("WATCHDOG=1") < 4 or "READY=1" not in heard:
            heard.append(ear.recv(100).decode())
        assert agent.stop() == 0
        ear.settimeout(1)
        while "STOPPING=1" not in heard:
            heard.append(ear.recv(100).decode())
    assert heard.count("READY=1") == heard.count("STOPPING=1") == 1
    assert set(heard) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}


def test_nobody_listens_and_nothing_happens(tmp_path: pathlib.Path) -> None:
    """Without systemd, with a socket that is gone, or a watchdog of another process: silence, no error."""
    systemd.tell("READY=1", {})
    systemd.tell("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert systemd.watchdog_every({}) is None
    assert systemd.watchdog_every({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}) is None
    assert systemd.watchdog_every({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": str(os.getpid())}) == 2.5

    async def once() -> None:
        async with systemd.watched():
            await asyncio.sleep(0)

    asyncio.run(once())


def test_an_abstract_address_is_heard() -> None:
    """systemd also writes addresses that begin with an at sign."""
    name = f"llmgw-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + name)
        ear.settimeout(5)
        systemd.tell("READY=1", {"NOTIFY_SOCKET": "@" + name})
        assert ear.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    ("cgroup", "found"),
    [
        (OURS, "llmgw-agent.service"),
        (f"{OURS}/llmgw-n1", "llmgw-agent.service"),
        ("/user.slice/user-1.slice/user@1.service/app.slice/mine.service", "mine.service"),
        ("/user.slice/user-1.slice/session-3.scope", ""),
        ("/", ""),
        ("", ""),
        ("/x/$(touch harm).service", ""),
    ],
)
def test_the_unit_is_read_from_the_cgroup(cgroup: str, found: str) -> None:
    """The innermost service; a login session and a container are none."""
    assert unit_of(cgroup) == found


@pytest.mark.parametrize(
    ("engines", "mode", "warned"),
    [
        (f"{OURS}/llmgw-n1", "control-group", True),
        ("", "mixed", True),
        ("/llmgw-n1", "control-group", False),
        (f"{OURS}/llmgw-n1", "process", False),
        (f"{OURS}/llmgw-n1", "", False),
    ],
)
def test_a_restart_that_would_kill_engines_is_warned_of(engines: str, mode: str, warned: bool) -> None:
    """Only where the engines lie in the unit's group and its mode is known to end them."""
    said = warning(OURS, engines, lambda *_: mode)
    assert bool(said) == warned
    if warned:
        assert (
            f"a restart of llmgw-agent.service would kill every engine of this node: its KillMode is {mode}"
            in said
        )


def test_systemctl_is_asked_for_the_right_manager(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's unit is the user manager's; no systemctl, a failing one, a hanging one: nobody knows."""
    program = script(
        tmp_path / "bin" / "systemctl", f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho control-group\n'
    )
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert kill_mode("a.service", False) == kill_mode("b.service", True) == "control-group"
    assert (tmp_path / "asked").read_text().splitlines() == [
        "show --property=KillMode --value -- a.service",
        "--user show --property=KillMode --value -- b.service",
    ]
    script(program, "#!/bin/sh\necho control-group\nexit 1\n")
    assert kill_mode("a.service", False) == ""
    script(program, "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(agent_unit, "ASKED_WITHIN", 0.1)
    assert kill_mode("a.service", False) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kill_mode("a.service", False) == ""
