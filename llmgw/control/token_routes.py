"""Tokens at the API: which requests need one, and the routes of `llmgw token`. Given to `control.api`."""

import json

import pydantic

from llmgw.control.api import LONGEST_TIME
from llmgw.control.joining import bearer
from llmgw.control.tokens import Kind, Token, Tokens
from llmgw.errors import Failed
from llmgw.transport.http import Request, Response, problem

HELP = (
    "set LLMGW_API_TOKEN; the first one is made on the control plane's machine: "
    "llmgw token create --api --state-dir DIR"
)


class CreateBody(pydantic.BaseModel):
    """What `token create` sends. `ttl` in seconds; None = it waits for ever."""

    kind: Kind
    name: str = pydantic.Field(default="", max_length=255)
    ttl: float | None = pydantic.Field(default=None, gt=0, le=LONGEST_TIME, allow_inf_nan=False)


class RevokeBody(pydantic.BaseModel):
    """What `token revoke` sends."""

    id: str


class TokenRow(pydantic.BaseModel):
    """A token as people see it: no secret, and no hash of one."""

    id: str
    kind: Kind
    name: str = ""
    bound: str = ""
    created: str
    until: str = ""


class TokenRoutes:
    """The API's door, and its routes about tokens."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens, self._required = tokens, required
        self.routes = {
            ("GET", "/v1/tokens"): self._list,
            ("POST", "/v1/tokens"): self._create,
            ("POST", "/v1/tokens/revoke"): self._revoke,
        }

    def refusal(self, request: Request) -> Response | None:
        """Why the request is not answered, or None where it may be."""
        if not self._required:
            return None
        try:
            found = self._tokens.judge(bearer(request.headers), "api")
        except Failed as failed:
            return problem(500, failed.said, help=failed.help)
        return None if isinstance(found, Token) else problem(401, f"cannot answer: {found}", help=HELP)

    async def _list(self, _: Request) -> Response:
        return _json([row(token).model_dump() for token in self._tokens.rows()])

    async def _create(self, request: Request) -> Response:
        body = CreateBody.model_validate_json(request.body)
        text, token = self._tokens.create(body.kind, body.name, body.ttl)
        return _json({"token": text, "row": row(token).model_dump()})

    async def _revoke(self, request: Request) -> Response:
        self._tokens.revoke(RevokeBody.model_validate_json(request.body).id)
        return _json({})


def row(token: Token) -> TokenRow:
    """What may be shown of a token."""
    return TokenRow(
        id=token.id,
        kind=token.kind,
        name=token.name,
        bound=token.bound_name and f"{token.bound_name} ({token.bound})",
        created=token.created.isoformat(),
        until=token.until.isoformat() if token.until is not None else "",
    )


def _json(value: object) -> Response:
    return Response(200, json.dumps(value).encode())
