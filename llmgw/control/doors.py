"""Who may ask the API: programs, and never a web page that somebody happens to look at. Pure; used by `api`.

On loopback there may be no token: whoever reaches the port may use it. A browser on such a machine can be made
to reach it by any page, so what only browsers send is refused, and so is a name that an attacker's DNS could
point here. Judged by the head alone, before a body is read.
"""

import ipaddress

from llmgw.kit.text import safe
from llmgw.transport.http import JSON, Request, Response, problem


def turned_away(request: Request, hosts: frozenset[str]) -> Response | None:
    """The refusal of a request, or None where it is welcome. `hosts` are names that are ours, lower case."""
    if "origin" in request.headers:
        return problem(403, "cannot answer a web page: requests with an Origin are refused")
    if (site := request.headers.get("sec-fetch-site", "none")) not in ("none", "same-origin"):
        return problem(403, f"cannot answer a web page: this request comes from another ({safe(site[:40])})")
    host = _host(request.headers.get("host", ""))
    if host and host not in hosts and not _is_literal(host):
        return problem(
            403,
            f"cannot answer as {host[:100]!r}: this control plane is not known by that name",
            help=f"use its address, or start it with --allow-host {host[:100]}",
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != JSON:
        return problem(
            415, f"cannot read {kind[:100] or 'a body of no type'!r}: content-type {JSON} is needed"
        )
    return None


def names(*given: str) -> frozenset[str]:
    """The names that a control plane answers to."""
    return frozenset({"localhost", *(name.lower().rstrip(".") for name in given if name)})


def _host(header: str) -> str:
    """The Host header without its port: `gpu-1`, `10.0.0.1` or `::1`."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
