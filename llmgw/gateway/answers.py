"""The answers that the gateway gives itself, as bytes: errors in OpenAI's form, and lists.

Called by `gateway.front` and `gateway.exchange`; what engines say never passes here.
"""

import dataclasses
from collections.abc import Iterable
from http import HTTPStatus

import orjson

REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is answered with an error. `retry_after` in seconds; 0 = do not say.

    `said` starts with "cannot …"; `code` is OpenAI's machine-readable word. `allow` goes with a 405.
    """

    status: int
    said: str
    code: str | None = None
    retry_after: float = 0.0
    allow: str = ""

    @property
    def document(self) -> bytes:
        """The error as OpenAI clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return orjson.dumps({"error": {"message": self.said, "type": kind, "param": None, "code": self.code}})


def refused(refusal: Refusal, request_id: bytes, *, keep: bool) -> bytes:
    """A whole answer. `keep` = the connection stays open behind it."""
    extra = b""
    if refusal.retry_after > 0:
        extra += b"retry-after: %d\r\n" % max(1, round(refusal.retry_after))
    if refusal.allow:
        extra += b"allow: %b\r\n" % refusal.allow.encode()
    return whole(refusal.status, refusal.document, request_id, keep=keep, extra=extra)


def whole(status: int, document: bytes, request_id: bytes, *, keep: bool, extra: bytes = b"") -> bytes:
    """A JSON answer with its length."""
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n%b"
        % (
            status,
            REASONS[status],
            len(document),
            request_id,
            extra,
            b"" if keep else b"connection: close\r\n",
            document,
        )
    )


def models(names: Iterable[str]) -> bytes:
    """The document of GET /v1/models."""
    return orjson.dumps({"object": "list", "data": [_card(name) for name in names]})


def model(name: str) -> bytes:
    """The document of GET /v1/models/NAME."""
    return orjson.dumps(_card(name))


def _card(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "llmgw"}


def broken_event(said: str) -> bytes:
    """The last event of a stream whose engine went away."""
    return b"data: %b\n\n" % Refusal(502, said, "upstream_broken").document
