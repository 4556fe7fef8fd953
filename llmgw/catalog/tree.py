"""What one file says, and where it says it.

Made by `builder`; read by `reading`, by every rule that points at something, and by `resolve` for
the places that screens cite.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping

from llmgw.catalog.diagnostics import Diagnostic, Spot
from llmgw.catalog.marks import Mark, Path, Span, marks
from llmgw.catalog.model import Place

LINES = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_ANCHOR = re.compile(r"&[\w-]+[ \t]*")


@dataclasses.dataclass(frozen=True)
class Tree:
    """What one file says. `parsed` is false where it could not be read to its end."""

    file: str
    data: bytes
    value: object = None
    problems: tuple[Diagnostic, ...] = ()
    parsed: bool = True

    @functools.cached_property
    def marks(self) -> Mapping[Path, Mark]:
        """The place of each part; of none where the file could not be read to its end."""
        return marks(self.data) if self.parsed else {}

    @functools.cached_property
    def lines(self) -> list[str]:
        """The text, line by line, as the parser counts them."""
        return LINES.split(self.data.decode("utf-8-sig", errors="replace"))

    def spot(self, path: Path = (), *, key: bool = False) -> Spot:
        """Where `path` was written, or the nearest thing around it that was: an alias, a merge key, a key."""
        written = path
        while written and written not in self.marks:
            written = written[:-1]
        on_key, on_value = self.marks.get(written, (None, (0, 0, 0, 1)))
        if written != path:
            merge, _ = self.marks.get((*written, "<<"), (None, None))
            on_key = merge or on_key
            key = merge is not None or not self._from(*on_value[:2]).startswith("*")
        return self.stretch(on_key if key and on_key else self._bare(on_value))

    def _from(self, line: int, column: int) -> str:
        return self.lines[line][column:] if line < len(self.lines) else ""

    def _bare(self, span: Span) -> Span:
        """A value without the anchor before it; of one that was left out, where it would begin."""
        line, column, last, end = span
        if (line, column) == (last, end):
            column += len(self._from(line, column)) - len(self._from(line, column).lstrip(" "))
            return (line, column, line, column)
        if (anchor := _ANCHOR.match(self._from(line, column))) is None:
            return span
        column += anchor.end()
        while line < last and self._from(line, column)[:1] in ("", "#"):
            line, column = line + 1, 0
            column = len(self._from(line, 0)) - len(self._from(line, 0).lstrip(" "))
        return (line, column, last, end)

    def stretch(self, span: Span) -> Spot:
        """The source line of `span` and where it lies on it."""
        first, column, last, end = span
        line = self.lines[first] if first < len(self.lines) else ""
        width = (end if last == first else len(line)) - column
        return Spot(Place(self.file, first + 1, column + 1), max(width, 1), line)
