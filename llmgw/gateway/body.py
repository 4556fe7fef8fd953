"""A request's JSON as the gateway needs it: which model it asks for, and where that stands.

Called by `gateway.admission`, and by `gateway.exchange` for each attempt. Nothing but the value of
`model` is ever changed, so what an engine reads is what the client wrote, byte for byte.
"""

import dataclasses
import re

import orjson

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")


class NotReadable(ValueError):
    """The body names no model; its text says why, as the end of "cannot read the request: …"."""


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """The bytes as they came, and the model they ask for."""

    raw: bytes
    model: str

    def asking(self, model: str) -> bytes:
        """The same body asking for `model`."""
        if model == self.model:
            return self.raw
        start, end = _values_of_model(self.raw)[0]
        return self.raw[:start] + orjson.dumps(model) + self.raw[end:]


def read(raw: bytes) -> Body:
    """The body of a request. Raises NotReadable."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotReadable(f"the body is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise NotReadable("the body is not a JSON object")
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise NotReadable('"model" is missing' if model is None else '"model" is not a name')
    # Readers differ in which of two they take, so two are none.
    if raw.count(b'"model"') != 1 and len(_values_of_model(raw)) != 1:
        raise NotReadable('"model" is there more than once')
    return Body(raw, model)


def _values_of_model(raw: bytes) -> list[tuple[int, int]]:
    """Where the values of top-level `model` keys stand in `raw`, which is a valid JSON object."""
    found: list[tuple[int, int]] = []
    depth = 0
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(raw, token.end())) and orjson.loads(text) == "model":
            value = _TOKEN.match(raw, colon.end())
            found.append((colon.end(), value.end() if value else colon.end()))
    return found
