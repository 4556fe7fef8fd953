"""A file server on loopback that counts what it is asked and what it sends, and misbehaves on request.

Called by the tests of fetching and by the lab. Each path serves its bytes under a strong ETag, with
ranges, until `behave` gives it a script: one `Answer` for each request in turn, the last for all that
follow. The counters are the ground truth that a fetch is measured by.
"""

import contextlib
import dataclasses
import hashlib
import http.server
import sys
import threading
import urllib.parse
from collections.abc import Mapping
from types import TracebackType
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One way to answer a GET. The default is right in every respect.

    `cut` = bytes of the body after which the connection ends; `stall` = after which nothing comes any
    more until the server closes; `pace` = seconds before each piece of `piece` bytes. `framing` says
    how the end is told. `body` replaces the file. `headers` are set last, "" removes one.
    """

    status: int = 0
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None
    stall: int | None = None
    pace: float = 0.0
    piece: int = 64 * 1024
    ranges: bool = True
    framing: str = "length"


@dataclasses.dataclass(slots=True)
class Asked:
    """One request as it came. `sent` counts the bytes of the body that left."""

    path: str
    headers: dict[str, str]
    sent: int = 0
    status: int = 0


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what many tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class WeightsServer:
    """Serves `files` (path → bytes) on 127.0.0.1 while the context is open."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = dict(files or {})
        self.asked: list[Asked] = []
        self._scripts: dict[str, list[Answer]] = {}
        self._moved = threading.Condition()
        self._closing = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it overrides
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def url(self, path: str) -> str:
        return f"http://{self.address}{path}"

    def behave(self, path: str, *script: Answer) -> None:
        """Answer the next requests of `path` so, one after the other; the last one stays."""
        with self._moved:
            self._scripts[path] = list(script)

    @property
    def sent(self) -> int:
        """Bytes of bodies that left, of all requests."""
        with self._moved:
            return sum(asked.sent for asked in self.asked)

    def count(self, path: str) -> int:
        """Requests for `path` so far."""
        with self._moved:
            return sum(asked.path == path for asked in self.asked)

    def wait_sent(self, size: int, within: float = 10.0) -> None:
        """Until that many bytes of bodies have left."""
        with self._moved:
            reached = self._moved.wait_for(lambda: sum(each.sent for each in self.asked) >= size, within)
        assert reached, f"the server sent {self.sent} of {size} bytes within {within:g} s"

    def _answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = urllib.parse.unquote(handler.path.partition("?")[0])
        asked = Asked(path, {name.lower(): value for name, value in handler.headers.items()})
        with self._moved:
            self.asked.append(asked)
            script = self._scripts.get(path, [Answer()])
            answer = script.pop(0) if len(script) > 1 else script[0]
        body = self.files.get(path)
        with contextlib.suppress(ConnectionError):
            if body is None and answer.body is None and not answer.status:
                _head(handler, 404, {"content-length": "9"})
                handler.wfile.write(b"not found")
            else:
                self._serve(handler, asked, answer, body or b"")

    def _serve(
        self, handler: http.server.BaseHTTPRequestHandler, asked: Asked, answer: Answer, file: bytes
    ) -> None:
        status, headers, body = _honest(asked, answer, file)
        if answer.body is not None:
            body = answer.body
            headers["content-length"] = str(len(body))
        if answer.framing != "length":
            del headers["content-length"]
        if answer.framing == "chunked":
            headers["transfer-encoding"] = "chunked"
        if answer.framing == "close":
            headers["connection"] = "close"
        headers |= {name.lower(): value for name, value in answer.headers.items()}
        asked.status = answer.status or status
        _head(handler, asked.status, headers)
        self._send(handler, asked, answer, body)

    def _send(
        self, handler: http.server.BaseHTTPRequestHandler, asked: Asked, answer: Answer, body: bytes
    ) -> None:
        limits = [each for each in (answer.cut, answer.stall) if each is not None]
        until = min([len(body), *limits])
        at = 0
        while at < until and not self._closing.wait(answer.pace):
            piece = body[at : min(until, at + answer.piece)]
            chunked = answer.framing == "chunked"
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            at += len(piece)
            with self._moved:
                asked.sent += len(piece)
                self._moved.notify_all()
        if answer.stall is not None:
            self._closing.wait()
        if at < len(body) or answer.framing == "close":
            handler.close_connection = True
        elif answer.framing == "chunked":
            handler.wfile.write(b"0\r\n\r\n")


def etag_of(body: bytes) -> str:
    """The strong ETag that `body` is served under."""
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def _honest(asked: Asked, answer: Answer, file: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a right answer, Range and If-Range obeyed."""
    headers = {"etag": etag_of(file), "accept-ranges": "bytes"}
    wanted = asked.headers.get("range", "")
    fresh = asked.headers.get("if-range", headers["etag"]) == headers["etag"]
    if not answer.ranges or not wanted.startswith("bytes=") or not fresh:
        return 200, headers | {"content-length": str(len(file))}, file
    begins, _, ends = wanted.removeprefix("bytes=").partition("-")
    first, last = int(begins), min(int(ends or len(file)), len(file) - 1)
    if first >= len(file):
        return 416, headers | {"content-length": "0", "content-range": f"bytes */{len(file)}"}, b""
    body = file[first : last + 1]
    said = f"bytes {first}-{last}/{len(file)}"
    return 206, headers | {"content-length": str(len(body)), "content-range": said}, body


def _head(handler: http.server.BaseHTTPRequestHandler, status: int, headers: Mapping[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        if value:
            handler.send_header(name, value)
    handler.end_headers()
