"""A fleet with TLS and tokens, end to end with real processes; and no secret anywhere but where it belongs."""

import json
import pathlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from llmgw.cli.exits import Exit
from llmgw.cli.main import run
from tests.support.certificates import AUTHORITY, CERTIFICATE, KEY
from tests.support.ports import free_block, free_port
from tests.support.processes import Process, Processes
from tests.support.waiting import wait_for

SOON = 40.0
"""Seconds for processes to start on a machine that is busy."""


class Secured:
    """A control plane on loopback that trusts nobody, and what people run beside it."""

    def __init__(
        self, directory: pathlib.Path, processes: Processes, said: pytest.CaptureFixture[str]
    ) -> None:
        self.directory, self.processes, self._said = directory, processes, said
        self.port, self.state = free_port(), directory / "control"
        self.secrets: list[str] = []
        self.output: list[str] = []
        where = ("--listen", f"127.0.0.1:{self.port}", "--state-dir", str(self.state))
        tls = ("--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY))
        self.control = processes.llmgw(
            "control", "serve", *where, *tls, "--require-tokens", "--heartbeat", "200ms"
        )

    def token(self, *args: str) -> str:
        """Make a token by way of the state directory, as on the control plane's machine."""
        code, text, _ = self.cli("token", "create", *args, "--state-dir", str(self.state), made=True)
        assert code == 0
        self.secrets.append(text.strip().rpartition("_")[2])
        return text.strip()

    def file(self, name: str, text: str, mode: int = 0o600) -> pathlib.Path:
        """A token file."""
        path = self.directory / name
        path.write_text(text + "\n")
        path.chmod(mode)
        return path

    def cli(self, *args: str, token: str = "", made: bool = False) -> tuple[int, str, str]:
        """One command: its exit code and what it said. `made` = its answer is a token, on purpose."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LLMGW_SERVER", f"127.0.0.1:{self.port}")
            patch.setenv("LLMGW_TLS_CA", str(AUTHORITY))
            patch.setenv("LLMGW_API_TOKEN", token)
            patch.chdir(self.directory)
            code = run(list(args))
        out, err = self._said.readouterr()
        self.output += [err] if made else [out, err]
        return code, out, err

    def agent(self, name: str, *more: str, env: dict[str, str] | None = None) -> Process:
        """An agent that speaks TLS."""
        ports = free_block(50)
        where = ("--control", f"127.0.0.1:{self.port}", "--tls-ca", str(AUTHORITY))
        own = ("--name", name, "--ports", f"{ports.start}-{ports.stop - 1}")
        state = ("--state-dir", str(self.directory / name))
        return self.processes.llmgw(name, "agent", *where, *own, *state, *more, env=env)


@pytest.fixture
def secured(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Secured]:
    """The fleet; every process of it ends with the test."""
    with Processes(tmp_path) as processes:
        yield Secured(tmp_path, processes, capsys)


def test_everybody_needs_a_token_and_nobody_tells_one(secured: Secured) -> None:
    """Nodes, a gateway and the CLI come in with theirs over TLS; no log, argument, file or answer has one."""
    api = secured.token("--api")
    node, door = secured.token("--node", "gpu-1"), secured.token("--gateway", "front")
    control = secured.control
    wait_for(lambda: "listens on" in control.said() or control.must_run(), "it listens", within=SOON)
    code, _, said = secured.cli("status")
    assert (code, "no token was given; make one with `llmgw token create --api`" in said) == (77, True)
    assert said_at_the_head(secured.port).startswith(b"HTTP/1.1 401 ")

    first = secured.agent("gpu-1", "--token-file", str(secured.file("gpu-1.token", node)))
    stranger = secured.agent("gpu-2", env={"LLMGW_TOKEN": node})
    gateway = secured.processes.llmgw(
        "gateway",
        "gateway",
        "--listen",
        f"127.0.0.1:{free_port()}",
        "--metrics",
        f"127.0.0.1:{free_port()}",
        "--name",
        "front",
        "--control",
        f"127.0.0.1:{secured.port}",
        "--tls-ca",
        str(AUTHORITY),
        "--token-file",
        str(secured.file("front.token", door)),
        "--state-dir",
        str(secured.directory / "gateway"),
    )
    wait_for(lambda: "registered at" in first.said() or first.must_run(), "the node is in", within=SOON)
    wait_for(
        lambda: "subscribed to" in gateway.said() or gateway.must_run(), "the gateway is in", within=SOON
    )
    wait_for(lambda: "cannot join: token" in stranger.said(), "another node is not", within=SOON)
    code, text, _ = secured.cli("nodes", "-o", "json", token=api)
    assert code == 0
    assert [row["name"] for row in json.loads(text)["items"]] == ["gpu-1"]
    code, text, _ = secured.cli("token", "list", "-o", "json", token=api)
    assert [(row["kind"], bool(row["bound"])) for row in json.loads(text)["items"]] == [
        ("api", False),
        ("node", True),
        ("gateway", True),
    ]

    number = next(row["id"] for row in json.loads(text)["items"] if row["kind"] == "node")
    assert secured.cli("token", "revoke", number, token=api)[0] == 0
    wait_for(
        lambda: f"token {number} is not known here" in first.said(), "the revoked node is out", within=SOON
    )
    assert first.running
    must_be_nowhere(secured)


def said_at_the_head(port: int) -> bytes:
    """What a stranger hears who has sent nothing of the 30 MB that he announced."""
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=SOON) as bare,
        context.wrap_socket(bare, server_hostname="127.0.0.1") as stranger,
    ):
        head = (
            b"POST /v1/apply HTTP/1.1",
            b"Host: localhost",
            b"Content-Type: application/json",
            b"Content-Length: 30000000",
        )
        stranger.sendall(b"\r\n".join((*head, b"", b"")))
        return stranger.recv(100)


def must_be_nowhere(secured: Secured) -> None:
    """No process's arguments, no file but the token files and the environment, no output has a secret."""
    given = {secured.directory / name for name in ("gpu-1.token", "front.token")}
    files = [path for path in secured.directory.rglob("*") if path.is_file() and path not in given]
    lines = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert len(secured.secrets) == 3
    assert any(path.name == "tokens.json" for path in files)
    for secret in secured.secrets:
        assert not [path for path in files if secret.encode() in path.read_bytes()]
        assert not [line for line in lines if secret.encode() in line]
        assert not [said for said in secured.output if secret in said]


def test_a_token_that_others_can_read_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is sent: the mode and what would help, and not a character of the token."""
    path = tmp_path / "open.token"
    path.write_text("llmgw-node_0_secret")
    path.chmod(0o644)
    assert run(["agent", "--token-file", str(path), "--state-dir", str(tmp_path / "state")]) == Exit.FAILED
    said = capsys.readouterr().err
    assert "others may read it (mode 0644)\n  help: chmod 600" in said
    assert "secret" not in said
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("serve --listen 192.0.2.1:7600", "cannot listen on 192.0.2.1 in clear"),
        ("agent --control 192.0.2.1:7600", "cannot talk to 192.0.2.1 in clear"),
        ("gateway --control gpu.example:7600", "cannot talk to gpu.example in clear"),
    ],
)
def test_nothing_is_said_in_clear_beyond_this_machine(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """Neither listened nor sent, unless somebody says that the network is trusted."""
    assert run([*line.split(), "--state-dir", str(tmp_path / "state")]) == Exit.FAILED
    told = capsys.readouterr().err
    assert said in told
    assert "--trusted-network" in told
    assert not (tmp_path / "state").exists()
