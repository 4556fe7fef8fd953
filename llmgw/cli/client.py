"""The CLI's side of the control plane's API: one call each, errors turned back into errors.

Verbs that talk to a control plane take `options.server_option` and use `Client`.
"""

import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
import pydantic

from llmgw.cli.options import SERVER
from llmgw.errors import Blocked, CatalogInvalid, Failed, LlmgwError, NotAllowed, Stale, Unreachable

T = TypeVar("T")
_ERRORS: Mapping[int, type[LlmgwError]] = {
    401: NotAllowed,
    403: NotAllowed,
    409: Stale,
    422: CatalogInvalid,
    423: Blocked,
}


class Client:
    """Calls to one control plane. Raises Unreachable, or what the control plane said."""

    def __init__(self, server: str | None) -> None:
        self.server = server or _from_toml() or SERVER
        self._http = httpx.Client(
            base_url=f"http://{self.server}", trust_env=False, timeout=httpx.Timeout(60.0, connect=5.0)
        )

    def get(self, path: str, **query: str | int) -> Any:
        """The JSON answer of a GET."""
        return self._call("GET", path, params=query).json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer of a POST."""
        return self._call("POST", path, json=body).json()

    def read(self, kind: Any, path: str, **query: str | int) -> Any:
        """The answer of a GET as a value of `kind`."""
        return pydantic.TypeAdapter(kind).validate_json(self._call("GET", path, params=query).content)

    def ask(self, kind: Any, path: str, body: Mapping[str, Any]) -> Any:
        """The answer of a POST as a value of `kind`."""
        return pydantic.TypeAdapter(kind).validate_json(self._call("POST", path, json=body).content)

    def _call(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **more)
        except httpx.TransportError as error:
            raise Unreachable(
                f"cannot reach the control plane at {self.server}: {str(error) or type(error).__name__}",
                help="start one with `llmgw serve`, or name another with --server or LLMGW_SERVER",
            ) from error
        if answer.is_success:
            return answer
        raise _refusal(answer)


def _refusal(answer: httpx.Response) -> LlmgwError:
    try:
        error = answer.json()["error"]
        said, better = str(error["said"]), str(error.get("help", ""))
    except (ValueError, KeyError, TypeError):
        said, better = f"cannot understand the control plane: it answered {answer.status_code}", ""
    return _ERRORS.get(answer.status_code, Failed)(said, help=better)


def _from_toml() -> str:
    """`server` of the nearest llmgw.toml, so that a clone is enough to find the cluster."""
    for directory in (pathlib.Path.cwd(), *pathlib.Path.cwd().parents):
        path = directory / "llmgw.toml"
        if path.is_file():
            try:
                return str(tomllib.loads(path.read_text()).get("server", ""))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise Failed(f"cannot read {path}: {error}") from error
    return ""
