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
    def _lines(self) -> list[str]:
        return LINES.split(self.data.decode(errors="replace"))

    def spot(self, path: Path = (), *, key: bool = False) -> Spot:
        """Where `path` was written, or the nearest thing around it that was."""
        while path and path not in self.marks:
            path = path[:-1]
            key = True
        on_key, on_value = self.marks.get(path, (None, (0, 0, 0, 1)))
        return self.stretch(on_key if key and on_key else on_value)

    def stretch(self, span: Span) -> Spot:
        """The source line of `span` and where it lies on it."""
        first, column, last, end = span
        line = self._lines[first] if first < len(self._lines) else ""
        width = (end if last == first else len(line)) - column
        return Spot(Place(self.file, first + 1, column + 1), max(width, 1), line)
