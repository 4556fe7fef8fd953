"""Which machine this is: whether an address is its own loopback, and whether two processes run on one.

What is said on a loopback crosses no network: asked by the verbs before anything is listened on or sent in clear.
"""

import contextlib
import ipaddress
import pathlib

_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


def is_loopback(host: str) -> bool:
    """Of `127.0.0.1`, `::1` and `localhost`; a name that would have to be resolved is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def this_host(path: pathlib.Path = _BOOT_ID) -> str:
    """What is alike for all processes of this machine, also in containers, until it boots; empty where nobody says."""
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""
