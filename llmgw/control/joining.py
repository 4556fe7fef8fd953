"""Whether a stream may be opened, by whom it was, and whether it may still be open. Used by `control.peers`.

Asked twice: at the stream's opening, before a byte of it is read, and when the peer has said who it is.
"""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Literal

from llmgw.control.tokens import Kind, Token, Tokens, Who, gateway
from llmgw.errors import Failed

log = logging.getLogger(__name__)

PATHS: Mapping[str, Kind] = {"/agent": "node", "/gateway": "gateway"}


def bearer(headers: Mapping[str, str]) -> str:
    """The token of a request's Authorization header; empty without one."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """What came of a token: its id, or why the door stays shut."""

    token: str = ""
    said: str = ""


class Joining:
    """The door of agents and gateways. Without `required` everybody may come: this machine is trusted."""

    def __init__(self, tokens: Tokens, *, required: bool) -> None:
        self._tokens, self._required = tokens, required

    def opened(self, path: str, headers: Mapping[str, str]) -> Entry:
        """A stream is asked for at `path`."""
        if not self._required:
            return Entry()
        try:
            found = self._tokens.judge(bearer(headers), PATHS[path])
        except Failed as failed:
            return Entry(said=failed.said)
        return Entry(token=found.id) if isinstance(found, Token) else Entry(said=f"cannot join: {found}")

    def introduced(self, token: str, path: str, kind: Literal["agent", "gateway"], id: str, name: str) -> str:  # noqa: A002
        """Why the peer may not come with the token of its stream, or nothing."""
        if not self._required:
            return ""
        if PATHS[path] != ("node" if kind == "agent" else "gateway"):
            return f"cannot join: {kind} {name} came through the door of a {PATHS[path]}"
        try:
            said = self._tokens.claim(token, Who(id, name) if kind == "agent" else gateway(name))
        except Failed as failed:
            return failed.said
        return f"cannot join: {said}" if said else ""

    def stands(self, token: str) -> bool:
        """Whether what was opened with `token` may stay. A file that cannot be read revokes nothing."""
        try:
            return not token or self._tokens.stands(token)
        except Failed as failed:
            log.warning("%s", failed.said)
            return True
