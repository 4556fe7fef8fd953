"""Where each part of a file was written, found by a second look at its events.

Called by `tree` for the few files that somebody points into, and by `builder` for a key that is there
twice: keeping the places of ten thousand files costs more than finding those of one again.
"""

import contextlib
from typing import Any

from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its types do not export it
from yaml.error import MarkedYAMLError
from yaml.events import (
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

Path = tuple[str | int, ...]
Span = tuple[int, int, int, int]
"""Line, column, end line, end column, all from 0, as the parser counts them."""
Mark = tuple[Span | None, Span]
"""Where the key is (list items have none), and where the value begins."""

MAX_DEPTH = 32
MAX_NODES = 20_000
"""What one file may hold, and as much of it as is looked at here."""


def marks(data: bytes) -> dict[Path, Mark]:
    """The place of each part of the document in `data`, as far as it is YAML; of two equal keys, the first."""
    looking = _Looking(data)
    with contextlib.suppress(MarkedYAMLError, ReaderError, _Enough):
        looking.document()
    return looking.found


def span(event: Any) -> Span:
    """Where an event of the parser begins and ends."""
    start, end = event.start_mark, event.end_mark
    return (start.line, start.column, end.line, end.column)


class _Enough(Exception):
    """A file that `builder` refuses too."""


class _Looking:
    """One file, event by event."""

    def __init__(self, data: bytes) -> None:
        self.found: dict[Path, Mark] = {}
        self._next = CParser(data).get_event
        self._seen = 0

    def document(self) -> None:
        self._next()
        if type(self._next()) is not StreamEndEvent:
            self._part((), None, self._next())

    def _part(self, path: Path, on_key: Span | None, event: Any) -> None:
        self.found.setdefault(path, (on_key, span(event)))
        self._seen += 1
        if len(path) > MAX_DEPTH or self._seen > MAX_NODES:
            raise _Enough
        if type(event) is MappingStartEvent:
            self._mapping(path)
        elif type(event) is SequenceStartEvent:
            self._sequence(path)

    def _mapping(self, path: Path) -> None:
        while type(key := self._next()) is not MappingEndEvent:
            inner = (*path, key.value if type(key) is ScalarEvent else "?")
            if type(key) is not ScalarEvent:
                self._part(inner, None, key)
            self._part(inner, span(key), self._next())

    def _sequence(self, path: Path) -> None:
        index = 0
        while type(event := self._next()) is not SequenceEndEvent:
            self._part((*path, index), None, event)
            index += 1
