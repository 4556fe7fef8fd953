"""A certificate for 127.0.0.1 and localhost and the authority that signed it, for tests and nothing else.

They hold for a hundred years; the authority's key is not kept.
"""

import pathlib
import ssl

from llmgw.transport import tls

HERE = pathlib.Path(__file__).parent / "tls"
AUTHORITY, CERTIFICATE, KEY = HERE / "ca.pem", HERE / "server.pem", HERE / "server.key"


def serving() -> ssl.SSLContext:
    """The server's end."""
    return tls.serving(CERTIFICATE, KEY)


def calling(*protocols: str) -> ssl.SSLContext:
    """An end that trusts it."""
    return tls.calling(str(AUTHORITY), *protocols)
