"""How the CLI gets at a control plane: which one, in clear or by TLS, and with which token. Used by `client`.

A token goes only where this user's own words lead. A server that the command or the environment names is one;
so is one that has a directory below `~/.config/llmgw/servers`. What an llmgw.toml says came with a clone: it
is enough to ask without a token.
"""

import dataclasses
import os
import pathlib
import ssl
from collections.abc import Mapping

import click

from llmgw.cli.found import Found, from_here
from llmgw.cli.options import SERVER, parse_address
from llmgw.cli.output import warn
from llmgw.errors import Failed
from llmgw.kit.hosts import is_loopback
from llmgw.kit.secret_files import read_secret, take_secret
from llmgw.transport.tls import SYSTEM, calling


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """What every call is made with. `server` is HOST:PORT."""

    server: str
    base_url: str
    verify: ssl.SSLContext
    headers: Mapping[str, str] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class _Server:
    """HOST:PORT, and the llmgw.toml that alone names it; None where the user does, or where it is the usual one."""

    name: str
    only: pathlib.Path | None
    own: pathlib.Path


def access(named: str | None) -> Access:
    """To the control plane that the user `named`, else to that of llmgw.toml, else to the usual one.

    `LLMGW_TLS_CA`, the user's own `ca.pem` for this server, or `tls_ca` of llmgw.toml is the authority to
    trust. The token comes from `LLMGW_API_TOKEN`, from the file that `LLMGW_API_TOKEN_FILE` names, or from the
    user's own `token` for this server. Raises Failed where that would tell a token to somebody else,
    click.UsageError where llmgw.toml names no address.
    """
    found = from_here(warn)
    server = _server(named, found)
    token = _token(server)
    if token and server.only is not None and not server.own.is_dir():
        raise Failed(
            f"cannot send the token to {server.name}: only {server.only} names it, and whoever wrote that would get it",
            help=f"if you mean it: --server {server.name}, or keep its token in {server.own / 'token'}",
        )
    headers = {"authorization": f"Bearer {token}"} if token else {}
    authority = _authority(server, found, token)
    if authority:
        return Access(server.name, f"https://{server.name}", calling(authority, "http/1.1"), headers)
    host, _ = parse_address(server.name)
    trusted = os.environ.get("LLMGW_TRUSTED_NETWORK") in ("1", "true")
    if token and not trusted and not is_loopback(host):
        raise Failed(
            f"cannot send a token to {server.name} in clear: everybody on the way could read it",
            help="set LLMGW_TLS_CA to the authority of its certificate, or LLMGW_TRUSTED_NETWORK=1",
        )
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a redirect to TLS would find no authority here
    return Access(server.name, f"http://{server.name}", nobody, headers)


def _server(named: str | None, found: Found | None) -> _Server:
    written = str(found.table.get("server", "")) if found is not None and not named else ""
    if written and found is not None:
        try:
            parse_address(written)
        except ValueError as error:
            raise click.UsageError(f"cannot use `server` of {found.path}: {error}") from error
    name = named or written or SERVER
    home = os.environ.get("XDG_CONFIG_HOME") or str(pathlib.Path("~/.config").expanduser())
    own = pathlib.Path(home) / "llmgw" / "servers" / name
    return _Server(name, found.path if found is not None and written and written != SERVER else None, own)


def _authority(server: _Server, found: Found | None, token: str) -> str:
    """The file of the authority to trust, or `system`; empty = in clear. Raises Failed."""
    if ours := os.environ.get("LLMGW_TLS_CA", ""):
        return ours
    if (own := server.own / "ca.pem").is_file():
        return str(own)
    written = str(found.table.get("tls_ca", "")) if found is not None else ""
    if found is None or not written or written == SYSTEM:
        return written
    if token:
        raise Failed(
            f"cannot send the token to {server.name}: only {found.path} names the authority to trust",
            help=f"if you mean it: set LLMGW_TLS_CA to that file, or copy it to {own}",
        )
    return str(found.path.parent / written)


def _token(server: _Server) -> str:
    # Left where it is, for the next call of this process; no child inherits it (`kit.children`).
    if token := take_secret("LLMGW_API_TOKEN", dict(os.environ)):
        return token
    if named := os.environ.get("LLMGW_API_TOKEN_FILE", ""):
        return read_secret(pathlib.Path(named))
    own = server.own / "token"
    return read_secret(own) if own.exists() else ""
