"""What a server's answer means, from its status and headers alone."""

import pytest

from llmgw.agent.answer import (
    Anew,
    Append,
    Complete,
    Elsewhere,
    Have,
    Later,
    Never,
    Wanted,
    judge,
    request_headers,
    strong,
)

HAVE = Have(400, '"abc"', 1000)
PART = {"content-range": "bytes 400-999/1000", "content-length": "600", "etag": '"abc"'}
CHECKED = Wanted(checked=True)


def test_the_rest_is_asked_for_only_under_a_strong_validator() -> None:
    """Range always comes with If-Range, and neither without a strong ETag."""
    assert request_headers(HAVE) == {
        "Accept-Encoding": "identity",
        "Range": "bytes=400-",
        "If-Range": '"abc"',
    }
    for have in (Have(), Have(400), Have(0, '"abc"')):
        assert request_headers(have) == {"Accept-Encoding": "identity"}


@pytest.mark.parametrize("etag", ['W/"abc"', "abc", '"', '""', '"a"b"', '"a\r\n"', ""])
def test_a_weak_or_odd_etag_proves_nothing(etag: str) -> None:
    """Only a quoted strong ETag is kept."""
    assert strong(etag) == ""


def test_a_right_part_is_appended() -> None:
    """206 that starts where the file ends, of the same length and ETag, goes on."""
    assert judge(HAVE, CHECKED, 206, PART) == Append(1000)
    assert judge(HAVE, CHECKED, 206, {"content-range": PART["content-range"]}) == Append(1000)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        PART | {"content-range": "bytes 0-999/1000"},
        PART | {"content-range": "bytes 399-999/1000"},
        PART | {"content-range": "bytes 401-999/1000"},
        PART | {"content-range": "bytes 400-1000/1000"},
        PART | {"content-range": "bytes 400-399/1000"},
        PART | {"content-range": "bytes 400-999/*"},
        PART | {"content-range": "bytes 400-1999/2000", "content-length": "1600"},
        PART | {"content-range": "bytes */1000"},
        PART | {"content-range": "items 400-999/1000"},
        PART | {"content-range": "bytes 400-999/" + "9" * 30},
        PART | {"content-range": "bytes ４00-999/1000"},
        PART | {"content-length": "599"},
        PART | {"etag": '"other"'},
        PART | {"etag": 'W/"abc"'},
    ],
)
def test_a_part_that_does_not_continue_the_file_voids_it(headers: dict[str, str]) -> None:
    """Any doubt about where a part belongs drops what is there; nothing is glued together."""
    verdict = judge(HAVE, CHECKED, 206, headers)
    assert isinstance(verdict, Later)
    assert verdict.void


def test_a_part_nobody_asked_for_is_void() -> None:
    """206 to a request for everything is no start of a file."""
    assert judge(Have(), CHECKED, 206, PART) == Later(
        "it answered 206 to a request for everything", void=True
    )


def test_200_starts_again() -> None:
    """A server without ranges, or with a changed file, sends it whole: the old bytes are void."""
    assert judge(HAVE, CHECKED, 200, {"content-length": "900", "etag": '"new"'}) == Anew(900, '"new"')
    assert judge(HAVE, CHECKED, 200, {"content-length": "900", "etag": 'W/"new"'}) == Anew(900, "")


def test_an_end_that_cannot_be_told_from_a_cut_needs_a_digest() -> None:
    """Without length and chunks a broken connection looks like the end: refused unless pinned."""
    assert isinstance(judge(Have(), Wanted(), 200, {}), Never)
    assert judge(Have(), CHECKED, 200, {}) == Anew(None, "")
    assert judge(Have(), Wanted(), 200, {"transfer-encoding": "chunked"}) == Anew(None, "")


def test_another_size_than_listed_is_refused_before_its_first_byte() -> None:
    """The listing's size is held against Content-Length."""
    said = judge(Have(), Wanted(1000, checked=True), 200, {"content-length": "999"})
    assert said == Never("it sends 999 bytes, the listing says 1000")


def test_416_means_complete_only_with_a_digest_to_prove_it() -> None:
    """416 is answered whatever If-Range says, so it proves nothing by itself."""
    whole = Have(1000, '"abc"', 1000)
    headers = {"content-range": "bytes */1000"}
    assert judge(whole, CHECKED, 416, headers) == Complete()
    for have, wanted, said in (
        (whole, Wanted(), headers),
        (HAVE, CHECKED, headers),
        (whole, CHECKED, {}),
        (Have(), CHECKED, headers),
    ):
        verdict = judge(have, wanted, 416, said)
        assert isinstance(verdict, Later)
        assert verdict.void


@pytest.mark.parametrize("status", [200, 206])
def test_an_encoded_body_is_not_the_file(status: int) -> None:
    """A server that compresses although identity was asked for is refused, by name."""
    verdict = judge(HAVE, CHECKED, status, PART | {"content-encoding": "gzip"})
    assert isinstance(verdict, Never)
    assert "gzip" in verdict.said


def test_what_may_pass_is_told_from_what_will_not() -> None:
    """429 and 5xx are asked again, after Retry-After where said; 4xx and odd answers are not."""
    assert judge(Have(), CHECKED, 503, {"retry-after": "7"}) == Later("it answered 503", after=7.0)
    assert judge(Have(), CHECKED, 429, {"retry-after": "99999"}) == Later("it answered 429", after=300.0)
    assert judge(Have(), CHECKED, 503, {"retry-after": "Fri, 31 Dec"}) == Later("it answered 503")
    for status in (204, 304, 400, 401, 403, 404, 410, 451, 501):
        assert judge(Have(), CHECKED, status, {}) == Never(f"it answered {status}")


def test_a_redirect_leads_elsewhere() -> None:
    """Only a redirect with a Location is one."""
    assert judge(Have(), CHECKED, 302, {"location": "/x"}) == Elsewhere("/x")
    assert judge(Have(), CHECKED, 302, {}) == Never("it answered 302")
