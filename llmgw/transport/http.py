"""One HTTP/1.1 request and its answer, as values. Handlers of `transport.listener` take and give these."""

import dataclasses
import json
from collections.abc import AsyncGenerator, Mapping

JSON = "application/json"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A whole request. `path` is decoded, `query` by name (the last of a name counts), header names lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: str = ""


def anybody(_: Request) -> None:
    """The door of a server that answers everybody."""
    return


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """An answer. A generator as `body` is sent piece by piece, as it comes, and closed when the client leaves."""

    status: int
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def problem(status: int, said: str, *, help: str = "") -> Response:  # noqa: A002 - the word people read
    """A refusal that `cli` can print: one sentence, and what would help."""
    return Response(status, json.dumps({"error": {"said": said, "help": help}}).encode())
