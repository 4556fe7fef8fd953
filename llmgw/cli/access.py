"""How the CLI gets at a control plane: in clear or by TLS, with its token, by what llmgw.toml says. Used by `client`."""

import dataclasses
import os
import pathlib
import ssl
import tomllib
from collections.abc import Mapping
from typing import Any

import click

from llmgw.cli.options import Address
from llmgw.errors import Failed
from llmgw.kit.hosts import is_loopback
from llmgw.kit.secret_files import read_secret, take_secret
from llmgw.transport.tls import SYSTEM, calling


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """What every call is made with."""

    base_url: str
    verify: ssl.SSLContext
    headers: Mapping[str, str] = dataclasses.field(repr=False)


def access(server: str) -> Access:
    """To the control plane at `server`, HOST:PORT. Raises Failed where that would tell a token to everybody.

    `LLMGW_TLS_CA`, or `tls_ca` of the nearest llmgw.toml, is the authority to trust; the token comes from
    `LLMGW_API_TOKEN`, or from the file that `LLMGW_API_TOKEN_FILE` names.
    """
    path, settings = nearest_toml()
    authority = os.environ.get("LLMGW_TLS_CA") or _beside(path, str(settings.get("tls_ca", "")))
    trusted = (
        os.environ.get("LLMGW_TRUSTED_NETWORK") in ("1", "true") or settings.get("trusted_network") is True
    )
    token = _token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if authority:
        return Access(f"https://{server}", calling(authority, "http/1.1"), headers)
    host, _ = Address().convert(server, None, None)
    if token and not trusted and not is_loopback(host):
        raise Failed(
            f"cannot send a token to {server} in clear: everybody on the way could read it",
            help="set LLMGW_TLS_CA to the authority of its certificate, or LLMGW_TRUSTED_NETWORK=1",
        )
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a redirect to TLS would find no authority here
    return Access(f"http://{server}", nobody, headers)


def nearest_toml() -> tuple[pathlib.Path | None, Mapping[str, Any]]:
    """The nearest llmgw.toml here or above, and what it says; a clone is enough to find the cluster. Raises Failed."""
    for directory in (pathlib.Path.cwd(), *pathlib.Path.cwd().parents):
        path = directory / "llmgw.toml"
        if path.is_file():
            try:
                return path, tomllib.loads(path.read_text())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
                raise Failed(f"cannot read {path}: {error}") from error
    return None, {}


def server_of_toml() -> str:
    """`server` of the nearest llmgw.toml; empty where none says it. Raises Failed."""
    path, settings = nearest_toml()
    server = str(settings.get("server", ""))
    try:
        return server if not server or Address().convert(server, None, None) else ""
    except click.BadParameter as error:
        raise Failed(f"cannot use `server` of {path}: {error.message}") from error


def _beside(path: pathlib.Path | None, authority: str) -> str:
    """A file that llmgw.toml names lies beside it."""
    if path is None or not authority or authority == SYSTEM:
        return authority
    return str(path.parent / authority)


def _token() -> str:
    named = os.environ.get("LLMGW_API_TOKEN_FILE", "")
    return take_secret("LLMGW_API_TOKEN", dict(os.environ)) or (
        read_secret(pathlib.Path(named)) if named else ""
    )
