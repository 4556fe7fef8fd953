"""Where a token goes: only where the user's own words lead, never where a file says that came with a clone."""

import os
import pathlib
import stat

import pytest

from llmgw.cli import uploads
from llmgw.cli.access import access
from llmgw.cli.found import nearest
from llmgw.errors import Failed
from tests.support.certificates import AUTHORITY

TOKEN = f"llmgw-api_12345678_{'a' * 64}"
ELSEWHERE = "203.0.113.9:7600"


@pytest.fixture
def clone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The directory of a clone, entered; the user has a token and a configuration of his own."""
    for name in [name for name in os.environ if name.startswith("LLMGW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LLMGW_API_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    inside = tmp_path / "clone"
    inside.mkdir()
    monkeypatch.chdir(inside)
    return inside


def own(clone: pathlib.Path, server: str) -> pathlib.Path:
    """The user's own directory about a server."""
    directory = clone.parent / "config" / "llmgw" / "servers" / server
    directory.mkdir(parents=True)
    return directory


def says(clone: pathlib.Path, text: str) -> None:
    (clone / "llmgw.toml").write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        f'server = "{ELSEWHERE}"\ntrusted_network = true\n',
        f'server = "{ELSEWHERE}"\ntls_ca = "system"\n',
        f'server = "{ELSEWHERE}"\ntls_ca = "ca.pem"\n',
        'server = "127.0.0.1:7777"\n',
    ],
)
def test_a_clone_gets_no_token(clone: pathlib.Path, text: str) -> None:
    """Whatever the file says beside the server: it alone is no reason to tell a secret."""
    (clone / "ca.pem").write_bytes(AUTHORITY.read_bytes())
    says(clone, text)
    with pytest.raises(Failed, match=r"cannot send the token to .*: only .*llmgw.toml names it") as refused:
        access(None)
    assert "aaaa" not in str(refused.value)
    assert "--server" in refused.value.help


def test_without_a_token_a_clone_is_enough(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told that the file's author should not hear."""
    monkeypatch.delenv("LLMGW_API_TOKEN")
    says(clone, f'server = "{ELSEWHERE}"\n')
    asked = access(None)
    assert (asked.server, asked.base_url, asked.headers) == (ELSEWHERE, f"http://{ELSEWHERE}", {})


def test_trust_in_a_network_is_the_users(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a clone cannot say that a token may go in clear; the environment can."""
    says(clone, "trusted_network = true\n")
    with pytest.raises(Failed, match="in clear: everybody on the way could read it"):
        access(ELSEWHERE)
    monkeypatch.setenv("LLMGW_TRUSTED_NETWORK", "1")
    assert access(ELSEWHERE).headers == {"authorization": f"Bearer {TOKEN}"}


def test_an_authority_is_the_users_too(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote the file could answer in the place of a server that the user names."""
    (clone / "ca.pem").write_bytes(AUTHORITY.read_bytes())
    says(clone, 'tls_ca = "ca.pem"\n')
    with pytest.raises(Failed, match="names the authority to trust"):
        access(ELSEWHERE)
    monkeypatch.setenv("LLMGW_TLS_CA", str(clone / "ca.pem"))
    asked = access(ELSEWHERE)
    assert (asked.base_url, len(asked.headers)) == (f"https://{ELSEWHERE}", 1)


def test_a_server_that_the_user_approved(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory in the user's configuration holds its token and its authority; that of another server is another."""
    monkeypatch.delenv("LLMGW_API_TOKEN")
    directory = own(clone, ELSEWHERE)
    (directory / "token").write_text(TOKEN)
    (directory / "token").chmod(0o600)
    (directory / "ca.pem").write_bytes(AUTHORITY.read_bytes())
    says(clone, f'server = "{ELSEWHERE}"\n')
    asked = access(None)
    assert (asked.base_url, asked.headers) == (f"https://{ELSEWHERE}", {"authorization": f"Bearer {TOKEN}"})
    says(clone, 'server = "203.0.113.10:7600"\n')
    assert access(None).headers == {}


def test_a_file_of_somebody_else_is_passed_over(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory that everybody may write to, its author is not the one who runs the command."""
    says(clone, f'server = "{ELSEWHERE}"\n')
    assert nearest(clone) is not None
    if os.geteuid() == 0:
        os.chown(clone / "llmgw.toml", 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    told: list[str] = []
    found = nearest(clone, told.append)
    assert found is None or found.path.parent not in (clone, *clone.parents[:1])
    assert len(told) == 1
    assert "it belongs to user" in told[0]
    assert access(None).server == "127.0.0.1:7600"


def test_children_see_no_token(clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The git that a plan runs, or what it was replaced by, sees who we are and not what we hold."""
    seen = clone / "seen"
    git = clone / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\nenv > {seen}\n")
    git.chmod(git.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{git.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    uploads._git(clone, "status")
    told = seen.read_text()
    assert "PATH=" in told
    assert not [line for line in told.splitlines() if "TOKEN" in line or line.startswith("GIT_DIR")]
