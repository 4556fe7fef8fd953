"""What an engine is sent: built from what we know, nothing relayed but the body.

Called by `gateway.exchange` for each attempt. Whatever else the client sent ends at the gateway.
"""

from llmgw.fleet.routes import Endpoint
from llmgw.gateway.admission import Forward


def request(order: Forward, endpoint: Endpoint, request_id: bytes) -> bytes:
    """The whole request for an attempt at `endpoint`."""
    body = order.body.asking(endpoint.model)
    head = (
        b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\naccept: %b\r\n"
        b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n"
        % (order.path.encode(), _host(endpoint), order.accept, request_id, sum(map(len, body)))
    )
    return b"".join((head, *body))


def _host(endpoint: Endpoint) -> bytes:
    address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"{address}:{endpoint.port}".encode()
