"""What a request is, before anything is done about it: refused, answered here, or sent on.

Called by `gateway.front` for each request that was received whole, step by step where its body is
large; `gateway.exchange` carries out what is to be sent on. Everything that is not named here does not exist: an engine's control routes
cannot be reached, however they are spelled.
"""

import dataclasses
from collections.abc import Mapping
from urllib.parse import unquote

from llmgw.gateway import answers
from llmgw.gateway.answers import Refusal
from llmgw.gateway.body import Body, NotReadable, reading
from llmgw.gateway.outline import Steps
from llmgw.routing.table import RoutingTable

MODELS = "/v1/models"

PATHS = frozenset(
    {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/score",
        "/v1/responses", "/v1/messages", "/v1/audio/speech",
    }
)  # fmt: skip
"""What is sent on, by the `model` in its body."""


@dataclasses.dataclass(frozen=True, slots=True)
class Forward:
    """Send it on: `model` is the catalog's name of what `body.model` asks for."""

    path: str
    accept: bytes
    body: Body
    model: str


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """Answer it here with this JSON."""

    document: bytes


def admit(
    method: bytes, target: bytes, headers: Mapping[bytes, bytes], raw: bytes, table: RoutingTable
) -> Steps[Refusal | Listed | Forward]:
    """Decide about one request, in steps of a few milliseconds. Header names in lower case; the query of `target` ends here."""
    path = target.partition(b"?")[0].decode("latin-1")
    if path == MODELS or path.startswith(f"{MODELS}/"):
        return _listing(method, unquote(path[len(MODELS) + 1 :]), table)
    if path not in PATHS:
        return Refusal(404, f"cannot find {path[:100]}: no such endpoint here", "not_found")
    if method != b"POST":
        return _wrong_method(path, "POST")
    try:
        body = yield from reading(raw)
    except NotReadable as error:
        return Refusal(400, f"cannot read the request: {error}", "invalid_body")
    route = table.route(body.model)
    if route is None:
        return _unknown(body.model)
    return Forward(path, headers.get(b"accept", b"*/*"), body, route.model)


def _listing(method: bytes, name: str, table: RoutingTable) -> Refusal | Listed:
    if method != b"GET":
        return _wrong_method(MODELS, "GET")
    if not name:
        return Listed(answers.models(table.names))
    return _unknown(name) if table.route(name) is None else Listed(answers.model(name))


def _wrong_method(path: str, allowed: str) -> Refusal:
    said = f"cannot do this at {path}: it takes {allowed} only"
    return Refusal(405, said, "method_not_allowed", allow=allowed)


def _unknown(name: str) -> Refusal:
    said = f"cannot find the model {name[:100]!r}: GET {MODELS} lists what there is"
    return Refusal(404, said, "model_not_found")
