"""Whether an address is this machine's own loopback: what is said there crosses no network.

Asked by the verbs before anything is listened on or sent in clear.
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """Of `127.0.0.1`, `::1` and `localhost`; a name that would have to be resolved is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
