"""Who the API answers: the CLI by any name that is ours, and no web page."""

import pathlib

import pytest

from llmgw.control.doors import names, turned_away
from llmgw.transport.http import Request
from tests.control.plane import Plane, files

OURS = names("gpu-1", "Control.example.")
JSON = {"content-type": "application/json"}


def _status(headers: dict[str, str], method: str = "GET") -> int:
    refusal = turned_away(Request(method, "/v1/status", {}, headers, b""), OURS)
    return refusal.status if refusal is not None else 200


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7600", "10.0.0.1", "[::1]:7600", "[fe80::1]", "localhost:7600", "LOCALHOST",
        "gpu-1:7600", "control.example", "control.example.:7600", "",
    ],
)  # fmt: skip
def test_names_that_are_ours(host: str) -> None:
    """Addresses cannot be rebound, and the names were given by the operator."""
    assert _status({"host": host}) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:7600", "gpu-1.evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]"],
)
def test_names_that_anybody_may_point_here(host: str) -> None:
    """A page whose own name leads to this port would be of the same origin as the API."""
    assert _status({"host": host}) == 403


def test_the_refusal_says_what_would_help() -> None:
    """An operator who uses a name of his own is told the option."""
    refusal = turned_away(Request("GET", "/v1/status", {}, {"host": "gpu-2:7600"}, b""), OURS)
    assert refusal is not None
    assert b"--allow-host gpu-2" in bytes(refusal.body)  # type: ignore[arg-type]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:7600", ""])
def test_pages(origin: str) -> None:
    """Only browsers send an Origin, on every request that could change something."""
    assert _status({"host": "127.0.0.1", "origin": origin}) == 403


@pytest.mark.parametrize(
    ("site", "status"),
    [("none", 200), ("same-origin", 200), ("cross-site", 403), ("same-site", 403), ("else", 403)],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pictures_of_a_page(site: str, status: int, method: str) -> None:
    """A page's <img> has no Origin; the browser says all the same where it comes from."""
    headers = {"host": "127.0.0.1:7600", "sec-fetch-site": site, "sec-fetch-mode": "no-cors", **JSON}
    assert _status(headers, method) == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("text/plain; x=application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data", 415),
        ("", 415),
    ],
)
def test_kinds_of_body(kind: str, status: int) -> None:
    """What a page may send without asking first is not read."""
    assert _status({"host": "localhost", "content-type": kind}, "POST") == status


def test_a_page_applies_nothing(tmp_path: pathlib.Path) -> None:
    """The request of a page that stopped a fleet: nothing is planned, nothing stands."""
    plane = Plane(tmp_path)
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    page = {
        "host": "evil.example:7600",
        "origin": "http://evil.example",
        "content-type": "text/plain;charset=UTF-8",
    }
    assert plane.ask(Request("POST", "/v1/apply", {}, page, b'{"files":{}}'))[0] == 403
    no_origin = {key: value for key, value in page.items() if key != "origin"}
    assert plane.ask(Request("POST", "/v1/apply", {}, no_origin, b'{"files":{}}'))[0] == 403
    assert plane.ask(Request("POST", "/v1/apply", {}, {"content-type": "text/plain"}, b"{}"))[0] == 415
    assert plane.adoption.number == 1


@pytest.mark.parametrize(
    "query", [{"after": "9" * 5000}, {"wait": "9" * 400}, {"after": "-1"}, {"after": "\u0661"}]
)
def test_numbers_of_a_query(tmp_path: pathlib.Path, query: dict[str, str]) -> None:
    """A number that is none is the caller's mistake: 400 and one sentence."""
    status, answer = Plane(tmp_path).call("GET", "/v1/events", **query)
    assert status == 400
    assert answer["error"]["said"].startswith(f"cannot read {next(iter(query))}=")
    assert len(answer["error"]["said"]) < 200
