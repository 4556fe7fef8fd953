"""The demo's weights are served as a hub serves them, so that the demo's fetch is a real one."""

import http.client
import pathlib
import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from demo import weights
from tests.support.waiting import wait_for

BODY = bytes(range(256)) * 40


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[weights.Server]:
    """A server of one file, `model.gguf`."""
    path = tmp_path / "model.gguf"
    path.write_bytes(BODY)
    with weights.serving(weights.Server({path.name: path})) as served:
        yield served


def ask(
    server: weights.Server, path: str = "/model.gguf", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request; `_` in a header's name stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def test_the_whole_file_has_a_length_and_a_validator(server: weights.Server) -> None:
    """Progress needs a length, resume needs a strong validator: GET and HEAD both give them."""
    status, headers, body = ask(server)
    _, head, nothing = ask(server, method="HEAD")

    assert (status, body, nothing) == (200, BODY, b"")
    assert headers["Content-Length"] == head["Content-Length"] == str(len(BODY))
    assert headers["ETag"] == head["ETag"] == weights.etag(server.files["model.gguf"])


@pytest.mark.parametrize(
    ("asked", "span"),
    [("bytes=0-9", (0, 9)), ("bytes=100-", (100, 10239)), ("bytes=10239-99999", (10239, 10239))],
)
def test_a_range_is_that_part(server: weights.Server, asked: str, span: tuple[int, int]) -> None:
    """A resumed fetch gets the bytes from where it stopped, and is told which they are."""
    status, headers, body = ask(server, Range=asked, If_Range=server.etag("model.gguf"))

    assert (status, body) == (206, BODY[span[0] : span[1] + 1])
    assert headers["Content-Range"] == f"bytes {span[0]}-{span[1]}/{len(BODY)}"


def test_another_validator_means_the_whole_file(server: weights.Server) -> None:
    """Half of an old file is never joined to half of a new one: a stale If-Range gets everything."""
    status, _, body = ask(server, Range="bytes=100-", If_Range='"of yesterday"')

    assert (status, body) == (200, BODY)


def test_a_range_beyond_the_end_is_refused(server: weights.Server) -> None:
    """Who has everything already is told the size, and gets no byte."""
    status, headers, body = ask(server, Range=f"bytes={len(BODY)}-")

    assert (status, headers["Content-Range"], body) == (416, f"bytes */{len(BODY)}", b"")


@pytest.mark.parametrize(
    "path", ["/", "/other.gguf", "/../model.gguf", "//model.gguf?x", "/%2e%2e/etc/passwd"]
)
def test_nothing_else_is_served(server: weights.Server, path: str) -> None:
    """Files are served by their name in a table: no path reaches the disk."""
    assert ask(server, path)[0] == 404


def test_what_was_sent_is_counted(server: weights.Server) -> None:
    """The counter says how many bytes left, so a test can prove that nothing was fetched twice."""
    ask(server)
    ask(server, method="HEAD")
    ask(server, Range="bytes=0-9")

    assert server.served == {"model.gguf": len(BODY) + 10}


def test_the_model_of_a_package_is_found_without_importing_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package of the weights imports what is not installed here, so only its folder is looked at."""
    package = tmp_path / "boxed_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)

    assert weights.packaged("boxed_model") == package / "tiny.gguf"


def test_a_missing_model_says_what_would_help() -> None:
    """Without the package, the demo says which one is missing and what to run."""
    with pytest.raises(SystemExit, match=r"no_such_model holds no \.gguf file \(make clean, then make up\)"):
        weights.packaged("no_such_model")


def test_a_client_that_went_away_is_no_traceback(
    server: weights.Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a request and a reset: nothing is printed. What is wrong with us is."""
    errors: list[BaseException | None] = []
    handle = server.handle_error

    def seen(request: object, client: object) -> None:
        handle(request, client)
        errors.append(sys.exception())

    monkeypatch.setattr(server, "handle_error", seen)
    client = socket.create_connection(server.server_address[:2])
    client.sendall(b"GET /model.gguf HT")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    wait_for(lambda: errors, "the server met the reset")
    assert isinstance(errors[0], ConnectionResetError)
    assert capsys.readouterr().err == ""

    monkeypatch.setattr(server, "files", None)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server)
    wait_for(lambda: len(errors) > 1, "the server met its own fault")
    assert "TypeError" in capsys.readouterr().err
