"""Cache entries as a fetch leaves them, without a fetch."""

import hashlib
import pathlib
from collections.abc import Mapping

from llmgw.agent import manifest
from llmgw.agent.manifest import FileRecord, Manifest
from llmgw.agent.partial import Partial
from llmgw.catalog.sources import Source, cache_name


def make_entry(
    root: pathlib.Path, source: Source, files: Mapping[str, bytes], *, name: str = ""
) -> pathlib.Path:
    """A whole entry of `source`; `name` gives it a wrong one."""
    entry = root / (name or cache_name(source))
    for each, body in files.items():
        (entry / "files" / each).parent.mkdir(parents=True, exist_ok=True)
        (entry / "files" / each).write_bytes(body)
    records = [
        FileRecord(name=n, size=len(b), sha256=hashlib.sha256(b).hexdigest()) for n, b in files.items()
    ]
    whole = Manifest(source=source.canonical, files=tuple(records), fetched_at="2026-01-01T00:00:00+00:00")
    manifest.write(entry, whole)
    return entry


def make_partial(root: pathlib.Path, source: Source, files: Mapping[str, bytes]) -> pathlib.Path:
    """A fetch of `source` that ended half-way, its lock let go."""
    root.mkdir(exist_ok=True)
    partial = Partial.open(root, source.canonical, "boot")
    assert partial is not None
    partial.expect(tuple(files))
    for name, body in files.items():
        partial.begin(name, None, '"etag"')
        partial.path(name).write_bytes(body)
    partial.close()
    return partial.directory
