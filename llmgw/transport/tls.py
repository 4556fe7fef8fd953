"""TLS of both ends of the one port. ALPN offers what the first bytes tell without it: h2 and HTTP/1.1.

Made by the three processes and the CLI from their options; given to `Listener.start` and to `connect`.
"""

import pathlib
import ssl

from llmgw.errors import Failed

SYSTEM = "system"
"""In place of a file: the authorities that this machine trusts anyway."""


def serving(certificate: pathlib.Path, key: pathlib.Path) -> ssl.SSLContext:
    """The server's end, with its chain and key in PEM. Raises Failed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_nobody)
    except (OSError, ValueError) as error:
        raise Failed(
            f"cannot serve with certificate {certificate} and key {key}: {_because(error)}",
            help="give a chain and its key in PEM, without a pass phrase",
        ) from error
    return context


def calling(authority: str, *protocols: str) -> ssl.SSLContext:
    """The client's end, which trusts the authorities in the file `authority`, or this machine's. Raises Failed."""
    try:
        context = ssl.create_default_context(cafile=None if authority == SYSTEM else authority)
    except OSError as error:
        raise Failed(
            f"cannot trust by {authority}: {_because(error)}", help="give certificates in PEM"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(protocols))
    return context


def distrust(error: ssl.SSLError) -> str:
    """Why a handshake failed, as a person would say it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.lower().rstrip('.')}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "it speaks no TLS: start it with --tls-cert, or leave the authority out here"
    return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _nobody() -> str:
    """Asked for a pass phrase, OpenSSL would wait at the terminal."""
    raise ValueError("the key has a pass phrase")


def _because(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM").replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
