"""Why a gateway is what it is: whether it speaks, by which table it serves, what waits for it.

The API answers `llmgw why GATEWAY` with it. Pure, from one `View`.
"""

from collections.abc import Iterator

from llmgw.kit.text import count
from llmgw.kit.units import show_seconds
from llmgw.planning.view import View
from llmgw.planning.why import Why


def why_gateway(view: View, name: str) -> Why:
    """Whether its clients can be served, as far as it is known here."""
    silent = view.silent(name)
    look = "systemctl status llmgw-gateway on its machine, and its log" if silent else ""
    return Why(
        "gateway", name, "Silent" if silent else "Ready", tuple(_said(view, name, silent)), try_next=look
    )


def _said(view: View, name: str, silent: bool) -> Iterator[str]:
    gateway, newest = view.fleet.gateways[name], view.ledger.routes.version
    spoke = f"spoke {show_seconds(max(0.0, view.now - gateway.last_seen))} ago"
    if gateway.last_seen <= view.fleet.since:
        spoke = (
            f"has not spoken since this control plane began, {show_seconds(view.now - view.fleet.since)} ago"
        )
    yield spoke
    if silent:
        yield "where it is down, its clients are not served: their connections are refused"
        yield "where only its way here is cut, it serves by the last table that it got"
        yield "one that stays away for a day is forgotten"
    if 0 < gateway.acked <= newest:
        yield f"serves by {'the newest table' if gateway.acked == newest else 'an older table than the newest'}"
    if flying := sum(gateway.in_flight.values()):
        yield f"{count(flying, 'request')} in flight when it spoke last"
    for replica, drain in sorted(view.ledger.drains.items()):
        if silent and not drain.stop_sent:
            left = show_seconds(max(0.0, drain.limit - view.now))
            yield f"{replica} drains and waits for it, {left} at most"
