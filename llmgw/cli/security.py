"""What the processes of a fleet ask of their network: TLS or a network that is trusted, and a token.

`cli.serve`, `cli.agent` and `cli.gateway` take their options from here; `cli.doing` turns them into what the
processes are built with. Light: `--help` imports it.
"""

import dataclasses
import os
import pathlib
import ssl
from collections.abc import Callable
from typing import Any

import click

from llmgw.errors import Failed
from llmgw.kit.hosts import is_loopback

PATH = click.Path(path_type=pathlib.Path)


@dataclasses.dataclass(frozen=True, slots=True)
class Calling:
    """How a control plane is called: by which authority it is trusted, and with which token."""

    authority: str = ""
    trusted: bool = False
    token_file: pathlib.Path | None = None


def calling_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--tls-ca`, `--trusted-network`, `--token-file`."""
    for option in (
        click.option(
            "--token-file",
            type=PATH,
            help="Its token, in a file that nobody else may read. [or: LLMGW_TOKEN]",
        ),
        trusted_option,
        click.option(
            "--tls-ca",
            default="",
            metavar="FILE",
            help="Speak TLS, and trust what this authority signed (PEM; `system`: this machine's own).",
        ),
    ):
        function = option(function)
    return function


def trusted_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--trusted-network`."""
    return click.option(
        "--trusted-network",
        is_flag=True,
        help="Speak in clear beyond this machine: everybody on the way can read the tokens.",
    )(function)


def called(host: str, calling: Calling) -> tuple[ssl.SSLContext | None, str]:
    """The TLS and the token to call `host` with. Raises Failed where that would tell the token to everybody."""
    from llmgw.kit.secret_files import read_secret, take_secret
    from llmgw.transport.tls import calling as make

    token = take_secret("LLMGW_TOKEN", os.environ)
    if calling.token_file is not None:
        token = read_secret(calling.token_file)
    if calling.authority:
        return make(calling.authority, "h2"), token
    if not is_loopback(host) and not calling.trusted:
        raise Failed(
            f"cannot talk to {host} in clear: everybody on the way could read along and answer",
            help="give --tls-ca, or --trusted-network where nobody else is on that network",
        )
    return None, token


def listened(
    host: str, certificate: pathlib.Path | None, key: pathlib.Path | None, *, trusted: bool
) -> tuple[pathlib.Path, pathlib.Path] | None:
    """The certificate and key to listen at `host` with. Raises Failed where it would be in clear, and click.UsageError."""
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if certificate is not None and key is not None:
        return certificate, key
    if not is_loopback(host) and not trusted:
        raise Failed(
            f"cannot listen on {host} in clear: everybody on the way could read along and answer",
            help="give --tls-cert and --tls-key, or --trusted-network where nobody else is on that network",
        )
    return None
