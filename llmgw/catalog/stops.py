"""Where the YAML parser gave up in a file, and what was before that.

Made by `syntax`, whose rules ask it. Tokens are looked at once more, and only where a rule needs them.
"""

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any

from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its types do not export it
from yaml.error import MarkedYAMLError
from yaml.tokens import (
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
)

BRACKETS = {FlowSequenceStartToken: ("list", "]"), FlowMappingStartToken: ("mapping", "}")}
"""What a bracket begins, and what ends it."""
_LEAD = re.compile(r"(?: |-(?= ))*")


def start(token: Any) -> tuple[int, int]:
    """Line and column of a token, from 0."""
    return token.start_mark.line, token.start_mark.column


class Stop:
    """Where the parser gave up, and what was before that."""

    def __init__(self, data: bytes, lines: Sequence[str], error: MarkedYAMLError) -> None:
        self.data, self.lines, self.error = data, lines, error
        self.problem, self.context = str(error.problem), str(error.context)
        mark = error.problem_mark
        self.line, self.column = (mark.line, mark.column) if mark else (0, 0)
        began = error.context_mark
        self.began = (began.line, began.column) if began else (self.line, self.column)

    @property
    def text(self) -> str:
        """The line on which it gave up."""
        return self.on(self.line)

    @property
    def sign(self) -> str:
        """The character at which it gave up; none at the end of a line."""
        return self.text[self.column : self.column + 1]

    def on(self, line: int) -> str:
        """What a line holds; nothing beyond the last."""
        return self.lines[line] if line < len(self.lines) else ""

    @functools.cached_property
    def _before(self) -> tuple[Any, Sequence[Any]]:
        """The last token before, and the brackets that are open, the outermost first."""
        last: Any = None
        opened: list[Any] = []
        with contextlib.suppress(MarkedYAMLError):
            following = CParser(self.data).get_token
            while (token := following()) is not None and start(token) < (self.line, self.column):
                last = token
                if type(token) in BRACKETS:
                    opened.append(token)
                elif opened and isinstance(token, FlowSequenceEndToken | FlowMappingEndToken):
                    opened.pop()
        return last, opened

    @property
    def last(self) -> Any:
        """The last token before it gave up."""
        return self._before[0]

    @property
    def opened(self) -> Sequence[Any]:
        """The brackets that are open there, the outermost first."""
        return self._before[1]

    @property
    def at_end(self) -> bool:
        """Whether nothing follows."""
        return not self.text[self.column :].strip() and not any(map(str.strip, self.lines[self.line + 1 :]))

    def outside(self, began: tuple[int, int], after: int) -> int | None:
        """The first line after `after` that lies no deeper than the one on which `began` something is."""
        line, column = began
        head = self.on(line)[:column]
        lead = _LEAD.match(head)
        edge = lead.end() if lead and lead.end() < column else head.rfind("-")
        for number in range(after + 1, min(self.line + 1, len(self.lines))):
            inner = self.lines[number].lstrip(" ")
            if inner and inner[0] not in "#]}" and len(self.lines[number]) - len(inner) <= edge:
                return number
        return None

    def indent(self, line: int) -> int:
        """How deep a line lies."""
        return len(self.on(line)) - len(self.on(line).lstrip(" "))

    def end(self, line: int) -> int:
        """Where a line ends."""
        return len(self.on(line).rstrip())
