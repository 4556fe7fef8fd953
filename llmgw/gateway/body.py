"""A request's JSON as the gateway needs it: which model it asks for, and where that stands.

Called by `gateway.admission`, once a request; `gateway.outgoing` asks for other names in it. Nothing
but the value of `model` is ever changed, so what an engine reads is what the client wrote, byte for byte.
"""

import dataclasses
import re

import orjson

from llmgw.gateway import outline
from llmgw.gateway.outline import CHUNK, Malformed, Steps

AT_ONCE = 64 * 1024
"""Bytes that are parsed whole and at once: 10 ms at the worst. Of a larger body one level is read, in steps."""

_PLAIN = re.compile(rb'"model"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_ESCAPED = b"\\u006"
"""How an escaped letter of `model` begins."""
_LONGEST_KEY = len('"model"') + 5 * len("u006d")


class NotReadable(ValueError):
    """The body names no model; its text says why, as the end of "cannot read the request: …"."""


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """The bytes as they came, the model they ask for, and where its name stands in them."""

    raw: bytes
    model: str
    span: tuple[int, int]

    def asking(self, model: str) -> tuple[bytes | memoryview, ...]:
        """The same body asking for `model`, in pieces: it may be large, and is copied only once."""
        if model == self.model:
            return (self.raw,)
        start, end = self.span
        whole = memoryview(self.raw)
        return whole[:start], orjson.dumps(model), whole[end:]


def read(raw: bytes) -> Body:
    """The body of a request, without a pause. Raises NotReadable."""
    return outline.to_end(reading(raw))


def reading(raw: bytes) -> Steps[Body]:
    """The body of a request, in steps of a few milliseconds each. Raises NotReadable."""
    if len(raw) <= AT_ONCE:
        document = _object(raw)
        if (
            "model" in document
            and raw.count(b'"model"') == 1
            and _ESCAPED not in raw
            and (plain := _PLAIN.search(raw))
        ):
            return _asking(raw, plain.span(1))
    try:
        members = yield from outline.members(raw)
    except Malformed as error:
        raise NotReadable(f"the body is not JSON ({error})") from error
    spans = [member.value for member in members if _is_model(raw, *member.key)]
    if not spans:
        raise NotReadable('"model" is missing')
    # Readers differ in which of two they take, so two are none.
    if len(spans) > 1:
        raise NotReadable('"model" is there more than once')
    return _asking(raw, spans[0])


def _object(raw: bytes) -> dict[str, object]:
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotReadable(f"the body is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise NotReadable("the body is not a JSON object")
    return document


def _is_model(raw: bytes, start: int, end: int) -> bool:
    return end - start <= _LONGEST_KEY and _loaded(raw[start:end]) == "model"


def _asking(raw: bytes, span: tuple[int, int]) -> Body:
    start, end = span
    model = _loaded(raw[start:end]) if end - start <= CHUNK else ""
    if not isinstance(model, str) or not model:
        raise NotReadable('"model" is missing' if model is None else '"model" is not a name')
    return Body(raw, model, span)


def _loaded(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotReadable(f"the body is not JSON ({error})") from error
