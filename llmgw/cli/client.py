"""The CLI's side of the control plane's API: one call each, errors turned back into errors.

Verbs that talk to a control plane take `options.server_option` and use `Client`. A call that reads is
answered at once or not at all; one that makes the control plane think says so while it waits.
"""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import click
import httpx
import pydantic

from llmgw.cli import names
from llmgw.cli.access import access
from llmgw.errors import Blocked, CatalogInvalid, Failed, LlmgwError, NotAllowed, Stale, Unreachable
from llmgw.transport.tls import distrust

T = TypeVar("T")
_ERRORS: Mapping[int, type[LlmgwError]] = {
    401: NotAllowed,
    403: NotAllowed,
    409: Stale,
    422: CatalogInvalid,
    423: Blocked,
}

CONNECT = 3.0
READ = 10.0
"""Seconds that an answer may take that only reads what is there."""

THINK = 180.0
"""Seconds for what is rehearsed, applied or asked of nodes."""

SAY_AFTER = 2.0
"""Seconds after which somebody who waits is told for what."""

ANOTHER = "name another with --server or LLMGW_SERVER"
SILENCE = 20.0
"""Seconds without a line in which a stream is over: the control plane says something every few."""


class Client:
    """Calls to one control plane. Raises Unreachable, or what the control plane said."""

    def __init__(self, server: str | None) -> None:
        by = access(server)
        self.server, self.sends_token = by.server, bool(by.headers)
        self._http = httpx.Client(
            base_url=by.base_url,
            verify=by.verify,
            headers=by.headers,
            trust_env=False,
            timeout=httpx.Timeout(READ, connect=CONNECT),
        )
        if (context := click.get_current_context(silent=True)) is not None:
            context.call_on_close(self._http.close)
        self._remembered = False

    def get(self, path: str, **query: str | int) -> Any:
        """The JSON answer of a GET. `wait` in the query is time that it may take besides."""
        return self._read(path, query).json()

    def text(self, path: str, **query: str | int) -> str:
        """The answer of a GET as it is."""
        return self._read(path, query).text

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer of a POST."""
        return self._write(path, body).json()

    def read(self, kind: Any, path: str, **query: str | int) -> Any:
        """The answer of a GET as a value of `kind`."""
        return pydantic.TypeAdapter(kind).validate_json(self._read(path, query).content)

    def ask(self, kind: Any, path: str, body: Mapping[str, Any]) -> Any:
        """The answer of a POST as a value of `kind`."""
        return pydantic.TypeAdapter(kind).validate_json(self._write(path, body).content)

    def lines(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """The JSON lines of a GET that goes on, as they come."""
        timeout = httpx.Timeout(SILENCE, connect=CONNECT)
        with (
            self._reaching(SILENCE),
            self._http.stream("GET", path, params=query, timeout=timeout) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise _refusal(answer, self.server)
            for line in answer.iter_lines():
                yield json.loads(line)

    def _read(self, path: str, query: Mapping[str, Any]) -> httpx.Response:
        longest = READ + float(query.get("wait", 0))
        return self._call("GET", path, longest, params=query)

    def _write(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        with _patience(f"waiting for the control plane at {self.server} …"):
            return self._call("POST", path, THINK, json=body)

    def _call(self, method: str, path: str, longest: float, **more: Any) -> httpx.Response:
        timeout = httpx.Timeout(longest, connect=CONNECT)
        with self._reaching(longest):
            answer = self._http.request(method, path, timeout=timeout, **more)
        if answer.is_success:
            self._remember()
            return answer
        raise _refusal(answer, self.server)

    @contextlib.contextmanager
    def _reaching(self, longest: float) -> Iterator[None]:
        try:
            yield
        except httpx.ReadTimeout as error:
            raise Unreachable(
                f"cannot get an answer of the control plane at {self.server}: it took the call and said "
                f"nothing for {longest:g} s",
                help="look at its log: it hangs, or its machine does",
            ) from error
        except httpx.TransportError as error:
            said, better = _why(error)
            raise Unreachable(
                f"cannot reach the control plane at {self.server}: {said}", help=better
            ) from error

    def _remember(self) -> None:
        """Keep the names of this fleet for completion, once a run, where they are not fresh. Never fails."""
        if self._remembered or names.fresh(self.server):
            return
        self._remembered = True
        with contextlib.suppress(httpx.HTTPError, ValueError, OSError):
            answer = self._http.get("/v1/names", timeout=1.0)
            if answer.is_success:
                names.remember(self.server, answer.json())


@contextlib.contextmanager
def _patience(said: str) -> Iterator[None]:
    """Say what is waited for, on stderr, where it takes longer than people expect."""
    timer = threading.Timer(SAY_AFTER, lambda: click.echo(said, err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _why(error: httpx.TransportError) -> tuple[str, str]:
    """Why nothing came of a call, and what would help."""
    found = list(_causes(error))
    if isinstance(error, httpx.ConnectTimeout):
        return f"it did not answer within {CONNECT:g} s", "look whether its machine is there, or too busy"
    if refused := next((each for each in found if isinstance(each, ssl.SSLError)), None):
        untrusted = isinstance(refused, ssl.SSLCertVerificationError)
        authority = "set LLMGW_TLS_CA to the file of the authority that signed it"
        return distrust(
            refused
        ), authority if untrusted else f"without LLMGW_TLS_CA it is asked in clear; {ANOTHER}"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return (
            "it hung up without an answer",
            f"if it speaks TLS, set LLMGW_TLS_CA to the file of its authority; {ANOTHER}",
        )
    words = next((each.strerror for each in found if isinstance(each, OSError) and each.strerror), "")
    said = words[:1].lower() + words[1:] or str(error) or type(error).__name__
    return said, f"start one with `llmgw serve`, or {ANOTHER}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _refusal(answer: httpx.Response, server: str) -> LlmgwError:
    try:
        error = answer.json()["error"]
        said, better = str(error["said"]), str(error.get("help", ""))
    except (ValueError, KeyError, TypeError):
        said = f"cannot take {server} for a control plane: it answered {answer.status_code} to {answer.request.url.path}"
        better = "a gateway, or something else, may listen there: name the control plane with --server or LLMGW_SERVER"
    return _ERRORS.get(answer.status_code, Failed)(said, help=better)
