"""Asking a node to run its engines' own version commands. A route of the API, for `llmgw engine-check`."""

import json

import pydantic

from llmgw.control.api import Routes
from llmgw.control.asking import Asking, NoAnswer
from llmgw.control.loop import Loop
from llmgw.control.names import node_named
from llmgw.errors import Failed
from llmgw.fleet.node import InstalledEngine
from llmgw.transport.http import Request, Response
from llmgw.wire import messages

PATIENCE = 160.0
"""Seconds: an engine that imports everything first takes ten, and there may be three of them."""

_ENGINES = pydantic.TypeAdapter(tuple[InstalledEngine, ...])


class CheckBody(pydantic.BaseModel):
    """What `engine-check` sends."""

    node: str


class Checking:
    """Answers `POST /v1/engine-check` for one control plane."""

    def __init__(self, loop: Loop, asking: Asking, patience: float = PATIENCE) -> None:
        self._loop, self._asking, self._patience = loop, asking, patience

    @property
    def routes(self) -> Routes:
        return {("POST", "/v1/engine-check"): self._check}

    async def _check(self, request: Request) -> Response:
        body = CheckBody.model_validate_json(request.body)
        node = node_named(body.node, self._loop.fleet)
        name = self._loop.fleet.name(node)
        try:
            result = await self._asking.ask(
                node, lambda epoch, seq: messages.Check(epoch=epoch, seq=seq), self._patience
            )
        except NoAnswer as none:
            raise Failed(f"cannot check the engines of {name}: {none.said}") from none
        if not result.ok:
            raise Failed(f"cannot check the engines of {name}: {result.said}", help="upgrade its agent")
        try:
            engines = _ENGINES.validate_python(result.data.get("engines", ()), strict=False)
        except pydantic.ValidationError as error:
            first = error.errors()[0]["msg"].lower()
            raise Failed(f"cannot check the engines of {name}: its answer makes no sense: {first}") from error
        rows = json.loads(_ENGINES.dump_json(engines))
        return Response(200, json.dumps({"node": name, "engines": rows}).encode())
