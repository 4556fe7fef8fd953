"""Where weights come from, and the one name they have on every disk.

Called by `catalog.documents` (what people wrote), the agent's cache (what it fetched) and
`planning.gc` (what nothing wants). Both sides of the wire compute `cache_name`; nothing else
names a cached file, and its form is frozen by a golden test.
"""

import dataclasses
import functools
import hashlib
import re
import urllib.parse

_HF = re.compile(r"(?P<org>[\w.-]+)/(?P<name>[\w.-]+)@(?P<revision>[\w.-]+)(?::(?P<files>\S+))?\Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One place that weights come from.

    `scheme` is `hf`, `https`, `http` or `file`; `canonical` is the spelling that names it;
    `sha256` is the digest people pinned, or empty where the scheme brings its own.
    """

    scheme: str
    canonical: str
    sha256: str = ""

    @property
    def fetched(self) -> bool:
        """Whether llmgw fetches it. A `file://` is the operator's: never fetched, never removed."""
        return self.scheme != "file"

    @property
    def filename(self) -> str:
        """The last part of the path, for an entry that is one file."""
        return self.canonical.partition("#")[0].rstrip("/").rsplit("/", 1)[-1]


@functools.lru_cache(maxsize=4)  # the rules ask for it first, then whoever uses it
def parse(text: str, sha256: str = "") -> Source:
    """The source that `text` names. Raises ValueError that says what is accepted."""
    scheme, found, rest = text.partition("://")
    if sha256 and not _SHA256.match(sha256):
        raise ValueError(f"cannot use sha256 {sha256!r}: 64 lower-case hexadecimal digits are needed")
    if not found or scheme not in ("hf", "https", "http", "file"):
        raise ValueError(
            f"cannot read source {text!r}: write hf://ORG/NAME@REVISION, https://…, http://… or file:///…"
        )
    if " " in text or not text.isprintable():
        raise ValueError(f"cannot read source {text!r}: it holds white space or control characters")
    if scheme == "hf":
        return _hf(text, rest)
    if scheme == "file":
        if not rest.startswith("/") or "/../" in f"{rest}/":
            raise ValueError(f"cannot read source {text!r}: file:// needs an absolute path without `..`")
        return Source("file", f"file://{rest}", sha256)
    return _http(text, scheme, sha256)


def _hf(text: str, rest: str) -> Source:
    match = _HF.match(rest)
    if match is None:
        raise ValueError(
            f"cannot read source {text!r}: write hf://ORG/NAME@REVISION, or hf://ORG/NAME@REVISION:FILE"
        )
    if ".." in (match["files"] or "").split("/"):
        raise ValueError(f"cannot read source {text!r}: the file leaves its repository")
    return Source("hf", f"hf://{rest}")


def _http(text: str, scheme: str, sha256: str) -> Source:
    parts = urllib.parse.urlsplit(text)
    if not parts.hostname or parts.username or parts.fragment:
        raise ValueError(f"cannot read source {text!r}: a host is needed, and neither a user nor a #fragment")
    if not parts.path.rsplit("/", 1)[-1]:
        raise ValueError(f"cannot read source {text!r}: the path names no file")
    if scheme == "http" and not sha256:
        raise ValueError(
            f"cannot use source {text!r}: plain http needs `sha256:` beside it, as sha256sum tells it"
        )
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    query = f"?{parts.query}" if parts.query else ""
    pin = f"#sha256={sha256}" if sha256 else ""
    return Source(scheme, f"{scheme}://{host}{port}{parts.path}{query}{pin}", sha256)


def cache_name(source: Source) -> str:
    """The directory name of `source` in every cache: sha256 of its canonical spelling, in hexadecimal."""
    return hashlib.sha256(source.canonical.encode()).hexdigest()
