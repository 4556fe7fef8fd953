"""The CLI's calls: who hangs is noticed, who thinks is waited for aloud, what is no address is usage."""

import contextlib
import os
import pathlib
import pty
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator

import click
import pytest

from llmgw.cli import client, main
from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.options import parse_address
from llmgw.errors import Unreachable
from tests.support import certificates


@pytest.fixture
def hung() -> Iterator[str]:
    """HOST:PORT of somebody who takes every call and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_control_plane_that_hangs_is_noticed(hung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the connection, so it is there, and says nothing: a sentence of its own, after the read limit."""
    monkeypatch.setattr(client, "READ", 0.1)
    with pytest.raises(Unreachable, match=r"took the call and said nothing for 0\.1 s"):
        Client(hung).get("/v1/status")
    with pytest.raises(Unreachable, match=r"said nothing for 1\.1 s"):
        Client(hung).get("/v1/events", wait=1)


def answering(listening: socket.socket, tls: ssl.SSLContext | None) -> None:
    """Take every call, and hang up on whoever is done with the handshake."""
    while True:
        try:
            called, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), called:
            called.settimeout(5.0)
            if tls is not None:
                tls.wrap_socket(called, server_side=True).close()
            elif called.recv(1) == b"\x16":  # a handshake
                called.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("speaks_tls", "authority", "said", "better"),
    [
        (True, "", "it hung up without an answer", "if it speaks TLS, set LLMGW_TLS_CA to the file of its authority"),
        (True, "system", "its certificate is not trusted: ", "set LLMGW_TLS_CA to the file of the authority"),
        (False, str(certificates.AUTHORITY), "it speaks no TLS: ", "without LLMGW_TLS_CA it is asked in clear"),
        (False, "", "it hung up without an answer", "name another with --server or LLMGW_SERVER"),
    ],
)  # fmt: skip
def test_a_handshake_that_fails_is_told_with_what_would_help(
    speaks_tls: bool, authority: str, said: str, better: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody listens, so nobody is told to start one; what is set, or is not, is named."""
    monkeypatch.setenv("LLMGW_TLS_CA", authority)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(
            target=answering, args=(listening, certificates.serving() if speaks_tls else None), daemon=True
        )
        server.start()
        with pytest.raises(Unreachable) as raised:
            Client(f"127.0.0.1:{listening.getsockname()[1]}").get("/v1/status")
        listening.shutdown(socket.SHUT_RDWR)
        server.join(10.0)
    assert said in raised.value.said
    assert better in raised.value.help
    assert "_ssl.c" not in raised.value.said
    assert "llmgw serve" not in raised.value.help


def test_a_stream_that_falls_silent_is_over(hung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following lives on a line every few seconds; without any it says who is silent."""
    monkeypatch.setattr(client, "SILENCE", 0.1)
    with pytest.raises(Unreachable, match="said nothing"):
        list(Client(hung).lines("/v1/logs", name="x"))


def test_who_waits_is_told_for_what(
    hung: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that makes the control plane think says so on stderr, once, and only when it takes long."""
    monkeypatch.setattr(client, "SAY_AFTER", 0.05)
    monkeypatch.setattr(client, "THINK", 0.3)
    with pytest.raises(Unreachable):
        Client(hung).post("/v1/plan", {})
    assert capsys.readouterr().err == f"waiting for the control plane at {hung} …\n"
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


@pytest.mark.parametrize(
    "server",
    [
        "garbage", "http://127.0.0.1:7600", "host:99999", "host:", "host:٣", "a b:1", "127.0.0.1::1", "::1:7600",
        "[127.0.0.1]:7600", "[::1:7600", "xn--:1", "☃:1", "a..b:1", "999.1.1.1:1", "a\\b:1", f"{'a' * 70}:1",
        f"{'a.' * 130}b:1", f"host:{'1' * 4500}",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_usage(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By option, by environment or by the file of a clone: exit 64, why, and nobody is asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMGW_SERVER", raising=False)
    assert main.run(["status", "--server", server]) == Exit.USAGE
    (tmp_path / "llmgw.toml").write_text(f"server = '{server}'\n")
    assert main.run(["models"]) == Exit.USAGE
    monkeypatch.setenv("LLMGW_SERVER", server)
    assert main.run(["nodes"]) == Exit.USAGE
    err = capsys.readouterr().err
    assert err.count("cannot use ") == 3
    assert max(map(len, err.splitlines())) < 300


@pytest.mark.parametrize(
    ("server", "host"),
    [
        (":7600", "127.0.0.1"), ("[::1]:7600", "::1"), ("[fe80::1%eth0]:7600", "fe80::1%eth0"), ("a_b.c.:7600", "a_b.c."),
        ("xn--bcher-kva.example:7600", "xn--bcher-kva.example"), ("bücher:7600", "bücher"),
    ],
)  # fmt: skip
def test_an_address_is_a_name_or_an_address(server: str, host: str) -> None:
    """Names that resolvers know, IPv6 in brackets, and no host is this machine."""
    assert parse_address(server) == (host, 7600)


def test_a_file_that_names_no_address_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named: whoever cloned it did not write it just now."""
    (tmp_path / "llmgw.toml").write_text('server = "garbage"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLMGW_SERVER", raising=False)
    with pytest.raises(
        click.UsageError, match=r"cannot use `server` of .*llmgw.toml: 'garbage' is no HOST:PORT"
    ):
        Client(None)


ASK = """
from llmgw.cli.asking import agree
from llmgw.errors import Declined
for _ in range(6):
    try:
        agree("Go?", way="go --yes")
        print("<agreed>")
    except Declined:
        print("<declined>")
"""


def test_a_yes_is_a_yes_however_it_is_written() -> None:
    """On a terminal: y, yes and YES go on; everything else, an empty line too, changes nothing."""
    ours, theirs = pty.openpty()
    asked = subprocess.Popen([sys.executable, "-c", ASK], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"yes\n" * 6)  # before anybody asks: it answers nothing
    said, answers = b"", ["y", "yes", "YES", "n", "", "yep"]
    while select.select([ours], [], [], 20)[0]:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if answers and said.count(b"[yes/no]") > 6 - len(answers):
            os.write(ours, f"{answers.pop(0)}\n".encode())
    assert asked.wait(10) == 0
    os.close(ours)
    told = [word for word in said.decode().split() if word in ("<agreed>", "<declined>")]
    assert told == ["<agreed>"] * 3 + ["<declined>"] * 3


def test_nobody_to_ask_is_declined(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal nothing is asked and nothing done; the way is said."""
    code = "import sys; sys.stdin = open('/dev/null'); from llmgw.cli.asking import agree; agree('Go?', way='go --yes')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot ask: there is no terminal. Nothing was changed" in done.stderr
    assert "go --yes" in done.stderr
    assert capsys.readouterr().out == ""
