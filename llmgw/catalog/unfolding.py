"""Mappings and lists between braces that hold comments, laid out as lines: there each comment has its place.

Called by `formatting` before anything else is laid out; between braces a comment would be lost. What cannot
be laid out like this (an anchor before the brace, nothing but comments inside) stays as it is.
"""

import bisect
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its types do not export it
from yaml.events import (
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

_BEGINS, _ENDS = (MappingStartEvent, SequenceStartEvent), (MappingEndEvent, SequenceEndEvent)


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """A part of a file: where it is, and what is in it (of a mapping, keys and values by turns).

    `inside` = where its first item may begin, after the brace.
    """

    start: int
    end: int
    column: int
    inside: int = 0
    braces: bool = False
    mapping: bool = False
    items: tuple["_Node", ...] = ()


def unfolded(text: str, comments: Sequence[tuple[int, int]]) -> str:
    """`text` with every outermost part between braces that holds one of `comments` (spans) as lines."""
    following = CParser(text).get_event
    following(), following()
    writer = _Writer(text, comments)
    for node, indent in reversed(list(_outermost(_node(following, following()), 0, writer.holds))):
        before, after = text[: node.start].rstrip(" \n"), text[node.end :]
        lines = list(writer.lines(node, indent))
        if not lines or not (before.endswith((":", "-")) or not node.column):
            continue
        if "#" in lines[-1] and after.lstrip(" ").startswith("#"):
            after = f"\n{' ' * indent}{after.lstrip(' ')}"
        begin = f"{before}\n" if node.column else text[: node.start]
        text = begin + "\n".join(lines) + after
    return text


def _node(following: Callable[[], Any], event: Any) -> _Node:
    """The part that begins with `event`."""
    start, end = event.start_mark, event.end_mark
    if not isinstance(event, _BEGINS):
        return _Node(start.index, end.index, start.column)
    items: list[_Node] = []
    while not isinstance(inner := following(), _ENDS):
        items.append(_node(following, inner))
    braces = bool(event.flow_style) and event.anchor is None
    last: Any = inner.end_mark if event.flow_style else (items[-1].end if items else end)
    return _Node(
        start.index,
        last if isinstance(last, int) else last.index,
        start.column,
        end.index,
        braces,
        isinstance(event, MappingStartEvent),
        tuple(items),
    )


def _outermost(node: _Node, indent: int, holds: Callable[[_Node], bool]) -> Iterator[tuple[_Node, int]]:
    """Each outermost part between braces that `holds`, with the column of the lines it becomes."""
    if node.braces:
        if holds(node):
            yield node, indent
    elif node.mapping:
        for key, value in zip(node.items[::2], node.items[1::2], strict=True):
            yield from _outermost(value, key.column + 2, holds)
    else:
        for item in node.items:
            yield from _outermost(item, item.column, holds)


class _Writer:
    """Writes parts of `text` as lines, with the comments in them."""

    def __init__(self, text: str, comments: Sequence[tuple[int, int]]) -> None:
        self._text, self._comments = text, comments
        self._starts = [start for start, _ in comments]

    def holds(self, node: _Node) -> bool:
        """Whether a comment is between its braces."""
        at = bisect.bisect_right(self._starts, node.start)
        return at < len(self._starts) and self._starts[at] < node.end

    def lines(self, node: _Node, indent: int) -> Iterator[str]:
        """The items of `node`, one a line from the column `indent` on."""
        pad, at = " " * indent, node.inside
        each = iter(node.items)
        items = list(zip(each, each, strict=True)) if node.mapping else [(item,) for item in node.items]
        for item in items:
            above, at = self._until(item[0].start, at)
            yield from (f"{pad}{comment}" for comment in above)
            last = item[-1]
            beside, at = self._beside(last.end)
            head = f"{self._raw(item[0], pad)}:" if node.mapping else "-"
            if last.braces and self.holds(last) and last.items:
                yield f"{pad}{head}{beside}"
                yield from self.lines(last, indent + 2)
            else:
                yield f"{pad}{head} {self._raw(last, pad)}".rstrip() + beside
        below, _ = self._until(node.end, at) if node.items else ([], 0)
        yield from (f"{pad}{comment}" for comment in below)

    def _raw(self, node: _Node, pad: str) -> str:
        lines = self._text[node.start : node.end].split("\n")
        return "\n".join([lines[0], *(f"{pad}    {line.strip()}" for line in lines[1:])])

    def _until(self, end: int, at: int) -> tuple[list[str], int]:
        """The comments between `at` and `end`."""
        return [self._text[a:b].rstrip() for a, b in self._comments if at <= a < end], end

    def _beside(self, end: int) -> tuple[str, int]:
        """The comment on the line on which an item ended, and where what follows may begin."""
        line = self._text.find("\n", end)
        found = [(a, b) for a, b in self._comments if end <= a < line]
        between = self._text[end : found[0][0]].strip(" ,\t") if found else "-"
        return (f"  {self._text[slice(*found[0])].rstrip()}", found[0][1]) if not between else ("", end)
