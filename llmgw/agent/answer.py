"""What a server's answer to a download means, decided from its status and headers alone.

`agent.fetch` asks with `request_headers`, hands the answer to `judge` and obeys the verdict. The
aim of every line: whatever a server answers, the file ends with the right bytes or not at all.
"""

import dataclasses
import re
from collections.abc import Mapping

from llmgw.kit.text import safe

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\Z", re.ASCII)
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,18})\Z", re.ASCII)
_STRONG = re.compile(r'"[\x21\x23-\x7e]+"\Z', re.ASCII)
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOVED = frozenset({301, 302, 303, 307, 308})
_LONGEST_WAIT = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Have:
    """What is on the disk of one file: bytes, the strong ETag they came under, the length said then."""

    size: int = 0
    etag: str = ""
    total: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What is known of the file before it is asked for. `checked` = a digest will prove its bytes."""

    size: int | None = None
    checked: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Append:
    """The body continues what is there. `total` is the length of the whole file."""

    total: int


@dataclasses.dataclass(frozen=True, slots=True)
class Anew:
    """The body is the whole file from its start; what is there is void."""

    total: int | None
    etag: str


@dataclasses.dataclass(frozen=True, slots=True)
class Complete:
    """Everything was there already; its digest decides."""


@dataclasses.dataclass(frozen=True, slots=True)
class Elsewhere:
    """Ask there instead."""

    location: str


@dataclasses.dataclass(frozen=True, slots=True)
class Later:
    """It may work later: in `after` seconds if the server said so. `void` = what is there is dropped."""

    said: str
    after: float = 0.0
    void: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Never:
    """Asking again would be answered the same."""

    said: str


Verdict = Append | Anew | Complete | Elsewhere | Later | Never


def strong(etag: str) -> str:
    """`etag` if it is a strong validator, else empty: only a strong one proves that bytes fit together."""
    return etag if _STRONG.match(etag) else ""


def resumable(have: Have) -> bool:
    """Whether the rest may be asked for, instead of everything."""
    return have.size > 0 and bool(have.etag)


def request_headers(have: Have) -> dict[str, str]:
    """The headers of the request that continues `have`."""
    plain = {"Accept-Encoding": "identity"}
    if not resumable(have):
        return plain
    return plain | {"Range": f"bytes={have.size}-", "If-Range": have.etag}


def judge(have: Have, wanted: Wanted, status: int, headers: Mapping[str, str]) -> Verdict:
    """The verdict on an answer to `request_headers(have)`. `headers` by lower-case name."""
    if status in _MOVED and headers.get("location"):
        return Elsewhere(headers["location"])
    if status in _AGAIN:
        return Later(f"it answered {status}", after=_retry_after(headers))
    if status == 416:
        return _unsatisfied(have, wanted, headers)
    if status not in (200, 206):
        return Never(f"it answered {status}")
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        return Never(f"it answers with Content-Encoding {safe(encoding)[:40]}, which was not asked for")
    return _whole(wanted, headers) if status == 200 else _part(have, headers)


def _whole(wanted: Wanted, headers: Mapping[str, str]) -> Verdict:
    total = _length(headers)
    if total is not None and wanted.size is not None and total != wanted.size:
        return Never(f"it sends {total} bytes, the listing says {wanted.size}")
    framed = total is not None or "chunked" in headers.get("transfer-encoding", "").lower()
    if not framed and not wanted.checked:
        return Never("it says no length, so a cut connection would look like the end; pin `sha256:`")
    return Anew(total, strong(headers.get("etag", "")))


def _part(have: Have, headers: Mapping[str, str]) -> Verdict:
    if not resumable(have):
        return Later("it answered 206 to a request for everything", void=True)
    said = headers.get("content-range", "")
    match = _CONTENT_RANGE.match(said)
    if match is None or match[3] == "*":
        return Later(f"its Content-Range {safe(said)[:80]!r} cannot be used", void=True)
    first, last, total = int(match[1]), int(match[2]), int(match[3])
    length = _length(headers)
    fits = first == have.size and first <= last < total and length in (None, last - first + 1)
    if not fits or have.total not in (None, total):
        return Later(f"its Content-Range {said!r} does not continue {have.size} bytes", void=True)
    if headers.get("etag", have.etag) != have.etag:
        return Later("the file changed while it was fetched (another ETag)", void=True)
    return Append(total)


def _unsatisfied(have: Have, wanted: Wanted, headers: Mapping[str, str]) -> Verdict:
    match = _UNSATISFIED.match(headers.get("content-range", ""))
    if match and int(match[1]) == have.size and wanted.checked:
        return Complete()
    return Later("it has nothing after what is here (416)", void=True)


def _length(headers: Mapping[str, str]) -> int | None:
    said = headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= 18 else None


def _retry_after(headers: Mapping[str, str]) -> float:
    said = headers.get("retry-after", "")
    return min(float(said), _LONGEST_WAIT) if said.isascii() and said.isdigit() else 0.0
