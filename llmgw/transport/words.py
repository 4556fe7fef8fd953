"""A peer's word past h2's parser: what h2 does about a plain DATA frame and a PING, and nothing else of what it does.

`transport.connection` asks it about frames that `transport.frames` found whole and plain. h2 spends most of its
time for such a frame on describing it for a log that nobody keeps, on a frame object and on a copy of it; a
fleet says a thousand a second. Whatever is not plain is h2's alone.
"""

import h2.connection
from h2.stream import StreamState

_OPEN = (StreamState.OPEN, StreamState.HALF_CLOSED_LOCAL)

ANSWER = b"\x00\x00\x08\x06\x01" + bytes(4)
"""The head of the frame that brings the eight bytes of a PING back: RFC 9113, 6.7."""


def asked(machine: h2.connection.H2Connection) -> bool:
    """Whether h2 would answer a PING now; False = give it the frame."""
    return machine.state_machine.state is not h2.connection.ConnectionState.CLOSED


def taken(machine: h2.connection.H2Connection, stream: int, data: bytes) -> bool:
    """Whether h2 counts `data` as received on `stream` now; False = nothing was done, give it the frame.

    Raises h2.exceptions.ProtocolError, as h2 does.
    """
    if not asked(machine):
        return False
    known = machine.streams.get(stream)
    if known is None or known.state_machine.state not in _OPEN:
        return False
    if len(data) > min(machine.inbound_flow_control_window, known.inbound_flow_control_window):
        return False
    machine._inbound_flow_control_window_manager.window_consumed(len(data))  # noqa: SLF001 - it has no public name
    known.receive_data(data, end_stream=False, flow_control_len=len(data))
    return True
