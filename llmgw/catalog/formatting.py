"""The one way to lay out a catalog file: its bytes → its bytes as `llmgw fmt` writes them.

Called by `llmgw fmt`. Keys come in the order of the schema with the comments above them, indentation
is two, scalars and comments stay as they were written. What would come back with another meaning, or
without one of its comments, is refused: nothing here may lose what somebody wrote.
"""

import bisect
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.resolver import VersionedResolver
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its types do not export it
from yaml.events import ScalarEvent, StreamEndEvent

from llmgw.catalog.builder import build
from llmgw.catalog.diagnostics import Invalid
from llmgw.catalog.documents import ORDER
from llmgw.catalog.marks import Path
from llmgw.catalog.tree import Tree
from llmgw.catalog.unfolding import unfolded
from llmgw.errors import Failed

MODELINE = "# yaml-language-server: $schema="
_PARTS: tuple[Path, ...] = (("scaling",), ("gpu",), ("cpu",), ())
"""The mappings whose keys have an order; the document itself last, its parts lie inside it."""
_ROUNDS = 4
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)


def formatted(name: str, data: bytes, schema: str = "") -> bytes:
    """`data` as it should be; `schema` is named in the first line where no line names one yet.

    Raises Invalid for what is not a catalog's YAML, and Failed for a layout that cannot be kept.
    """
    tree = _parsed(name, data)
    if not isinstance(tree.value, dict):
        return data
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    if schema and MODELINE not in text:
        text = f"{MODELINE}{schema}\n{text}"
    for _ in range(_ROUNDS):
        before, text = text, _laid_out(name, text)
        if text == before:
            _compare(tree, _parsed(name, text.encode()))
            return text.encode()
    raise Failed(f"cannot format {name}: its comments move each time", help="lay it out by hand")


def _parsed(name: str, data: bytes) -> Tree:
    tree = build(name, data)
    if any(problem.severity == "error" for problem in tree.problems):
        raise Invalid(tree.problems)
    return tree


def _laid_out(name: str, text: str) -> str:
    text = _aligned(unfolded(text, [found.span() for found in _comments(text)]))
    lines, tree = text.splitlines(), build(name, text.encode())
    for path in _PARTS:
        lines = _in_order(lines, tree, path)
    return _aligned(_written(name, "\n".join(lines) + "\n"))


def _in_order(lines: list[str], tree: Tree, path: Path) -> list[str]:
    """`lines` with the keys of the block mapping at `path` in order, each with the comments above it."""
    keys = [
        (str(inner[-1]), on_key) for inner, (on_key, _) in tree.marks.items() if inner[:-1] == path and inner
    ]
    spans = [on_key for _, on_key in keys if on_key]
    if any(lines[span[0]][: span[1]].strip() for span in spans) or len(spans) < len(keys) or len(keys) < 2:
        return lines  # on one line between braces, or with nothing to compare
    ranks = _ranks([key for key, _ in keys])
    if ranks == sorted(ranks):
        return lines
    column = spans[0][1]
    first = spans[0][0]
    starts = [first, *(_with_comments(lines, span[0], column) for span in spans[1:])]
    end = _with_comments(lines, _end(lines, spans[-1][0], column), column)
    chunks = [lines[begin:after] for begin, after in zip(starts, [*starts[1:], end], strict=True)]
    moved = [
        line
        for _, chunk in sorted(zip(ranks, chunks, strict=True), key=lambda pair: pair[0])
        for line in chunk
    ]
    while not moved[0].strip() and not (first and lines[first - 1].strip()):
        moved.pop(0)  # the gap before what is first now
    return [*lines[:first], *moved, *lines[end:]]


def _ranks(keys: Sequence[str]) -> list[int]:
    """Where each key belongs; one that nobody knows stays behind the one before it."""
    found: list[int] = []
    for key in keys:
        found.append(ORDER.index(key) if key in ORDER else found[-1] if found else 0)
    return found


def _with_comments(lines: Sequence[str], line: int, column: int) -> int:
    """The first of the blank lines and comments above `line` that belong to it, not to what is before."""
    while line > 0 and _aside(lines[line - 1]) and _indent(lines[line - 1]) <= column:
        line -= 1
    return line


def _end(lines: Sequence[str], line: int, column: int) -> int:
    """The first line after `line` that is out of a mapping at `column`."""
    following = range(line + 1, len(lines))
    return next((i for i in following if not _aside(lines[i]) and _indent(lines[i]) < column), len(lines))


def _aside(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


def _aligned(text: str) -> str:
    """Comments that have a line to themselves, as far in as the nearer of what is before and after them."""
    lines = text.splitlines()
    inside = set(_continued(text))
    written = [number for number, line in enumerate(lines) if number in inside or not _aside(line)]
    indents = [0, *(_indent(lines[number]) for number in written), 0]
    for number, line in enumerate(lines):
        if line.strip() and _aside(line) and number not in inside:
            at = bisect.bisect(written, number)
            near = min(indents[at + 1], indents[at], key=lambda indent: abs(indent - _indent(line)))
            lines[number] = " " * near + line.strip()
    return "\n".join(lines) + "\n"


def _continued(text: str) -> Iterator[int]:
    """The lines that a scalar goes on in: what looks like a comment there is none."""
    for event in _scalars(text):
        start, end = event.start_mark, event.end_mark
        yield from range(start.line + 1, end.line + (end.column > 0))


class _AsWritten(VersionedResolver):
    """Every plain scalar is the text it is written as: 0.90 stays 0.90, and 0o17 stays 0o17."""

    @property
    def versioned_resolver(self) -> dict[str, Any]:
        return {}


def _written(name: str, text: str) -> str:
    yaml = YAML()
    yaml.Resolver = _AsWritten
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    try:
        data = yaml.load(text)
        for path in _PARTS:
            _order_between_braces(data.get(path[0]) if path else data)
        yaml.dump(data, stream)
    except YAMLError as error:
        raise Failed(
            f"cannot format {name}: {str(error).splitlines()[0]}", help="lay it out by hand"
        ) from error
    return stream.getvalue()


def _order_between_braces(data: object) -> None:
    if isinstance(data, CommentedMap) and data.fa.flow_style():
        for _, key in sorted(zip(_ranks(list(data)), list(data), strict=True), key=lambda pair: pair[0]):
            data.move_to_end(key)


def _compare(before: Tree, after: Tree) -> None:
    """Raises Failed unless meaning and comments are those of before."""
    lost = Counter(comments(before.data)) - Counter(comments(after.data))
    if lost:
        raise Failed(
            f"cannot format {before.file}: the comment {next(iter(lost))[:60]!r} would be lost",
            help="give it a line of its own",
        )
    if before.value != after.value:
        raise Failed(f"cannot format {before.file}: its meaning would change", help="lay it out by hand")


def comments(data: bytes) -> Iterator[str]:
    """Every comment in `data`, without the white space at its end."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    for found in _comments(text):
        yield found[0].rstrip()


def _comments(text: str) -> Iterator[re.Match[str]]:
    """Every comment in `text`, with its place."""
    kept = list(text)
    for event in _scalars(text):
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in ("|", ">"):
            start = text.find("\n", start)  # what follows the sign on its line may be a comment
        kept[start:end] = ("\n" if char == "\n" else "x" for char in text[start:end])
    yield from _COMMENT.finditer("".join(kept))


def _scalars(text: str) -> Iterator[Any]:
    """The event of each scalar in `text`."""
    following = CParser(text).get_event
    while type(event := following()) is not StreamEndEvent:
        if type(event) is ScalarEvent:
            yield event
