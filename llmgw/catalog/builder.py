"""Bytes of one YAML file → plain Python data that remembers where each part was written.

Called by `load` for every file; `reading` makes documents of the data. The C parser finds the
events, this module gives them their YAML 1.2 meaning and refuses what a catalog has no use for:
tags, merge keys, several documents, depth, and aliases that multiply.

    E101 no YAML    E102 key twice    E103 tag       E104 alias     E105 second document
    E106 too deep   E107 too large    E108 no UTF-8  E110 key       E111 unclear number
"""

import dataclasses
from typing import Any, NoReturn

from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined]  # the C module has no types
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from llmgw.catalog.diagnostics import Diagnostic, Related
from llmgw.catalog.scalars import Unclear, plain
from llmgw.catalog.tree import LINES, Mark, Path, Span, Tree

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
"""In one file; an alias counts as everything that it stands for."""
MAX_PROBLEMS = 100
"""In one file; what follows the hundredth is seldom news."""


class _Refused(Exception):
    """Reading this file ends here; the problem has been noted."""


def build(file: str, data: bytes) -> Tree:
    """The data in `file` and all that is wrong with its YAML. Never raises for what is in the bytes."""
    builder = _Builder(Tree(file, data))
    try:
        builder.check_bytes()
        value = builder.document()
    except _Refused:
        return builder.tree(None, parsed=False)
    except MarkedYAMLError as error:
        builder.note_syntax(error)
        return builder.tree(None, parsed=False)
    except ReaderError as error:
        builder.note_reader(error)
        return builder.tree(None, parsed=False)
    return builder.tree(value, parsed=True)


class _Builder:
    """One file on its way to a `Tree`."""

    def __init__(self, source: Tree) -> None:
        self._source = source
        self._marks: dict[Path, Mark] = {}
        self._problems: list[Diagnostic] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._open: set[str] = set()
        self._nodes = 0

    def tree(self, value: object, *, parsed: bool) -> Tree:
        return dataclasses.replace(
            self._source, value=value, marks=self._marks, problems=tuple(self._problems), parsed=parsed
        )

    def check_bytes(self) -> None:
        data = self._source.data
        if len(data) > MAX_BYTES:
            said = f"the file is larger than {MAX_BYTES >> 20} MiB"
            self._refuse("E107", said, (0, 0, 0, 1), help="split it: one document a file")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data:
            self._refuse("E108", "the file is not UTF-8 text", (0, 0, 0, 1), help="save it as UTF-8")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            self._refuse("E108", f"byte {error.start} is not UTF-8", self._byte(error.start))

    def _byte(self, position: int) -> Span:
        lines = LINES.split(self._source.data[:position].decode(errors="replace"))
        return (len(lines) - 1, len(lines[-1]), len(lines) - 1, len(lines[-1]) + 1)

    def document(self) -> object:
        """The only document, or None with a warning where the file is empty."""
        self._next = CParser(self._source.data).get_event
        self._next()
        value = None if type(self._next()) is StreamEndEvent else self._only_document()
        if value is None:
            self._note("W501", "the file is empty", (0, 0, 0, 1), help="remove it, or write a document")
        return value

    def _only_document(self) -> object:
        event = self._next()
        self._marks[()] = (None, _span(event))
        value = self._value(event, (), 1)
        self._next()
        after = self._next()
        if type(after) is not StreamEndEvent:
            self._note("E105", "a second document begins", _span(after), help="give it a file of its own")
        return value

    def _value(self, event: Any, path: Path, depth: int) -> object:
        kind = type(event)
        if kind is AliasEvent:
            return self._alias(event)
        self._count(1, event)
        if event.tag is not None:
            self._note("E103", "tags have no meaning here", _span(event), help="leave the tag out")
        if event.anchor is not None:
            return self._anchored(event, path, depth)
        return self._scalar(event) if kind is ScalarEvent else self._collection(event, path, depth)

    def _collection(self, event: Any, path: Path, depth: int) -> object:
        if depth > MAX_DEPTH:
            self._refuse("E106", f"this lies more than {MAX_DEPTH} levels deep", _span(event))
        if type(event) is MappingStartEvent:
            return self._mapping(path, depth)
        return self._sequence(path, depth)

    def _anchored(self, event: Any, path: Path, depth: int) -> object:
        name, before = event.anchor, self._nodes
        self._open.add(name)
        value = self._scalar(event) if type(event) is ScalarEvent else self._collection(event, path, depth)
        self._open.discard(name)
        self._anchors[name] = (value, self._nodes - before + 1)
        return value

    def _alias(self, event: Any) -> object:
        if event.anchor in self._open:
            self._refuse("E104", f"alias *{event.anchor} stands inside its own anchor", _span(event))
        if event.anchor not in self._anchors:
            self._refuse("E104", f"alias *{event.anchor} has no anchor before it", _span(event))
        value, nodes = self._anchors[event.anchor]
        self._count(nodes, event)
        return value

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            said = f"the file says more than {MAX_NODES} things, aliases written out"
            self._refuse("E107", said, _span(event))

    def _sequence(self, path: Path, depth: int) -> list[object]:
        found: list[object] = []
        while type(event := self._next()) is not SequenceEndEvent:
            inner = (*path, len(found))
            self._marks[inner] = (None, _span(event))
            found.append(self._value(event, inner, depth + 1))
        return found

    def _mapping(self, path: Path, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while type(event := self._next()) is not MappingEndEvent:
            key = self._key(event, path, depth)
            inner = (*path, key)
            if key in found:
                self._note_twice(key, event, self._marks[inner])
            value_event = self._next()
            self._marks[inner] = (_span(event), _span(value_event))
            found[key] = self._value(value_event, inner, depth + 1)
        return found

    def _note_twice(self, key: str, event: Any, first: Mark) -> None:
        earlier = Related(self._source.stretch(first[0] or first[1]), "first here")
        said = f"key `{key}` is written twice"
        self._note("E102", said, _span(event), help="keep one of them", related=(earlier,))

    def _key(self, event: Any, path: Path, depth: int) -> str:
        """The text of a key; what is no text is noted and skipped under a name that nothing has."""
        if type(event) is not ScalarEvent:
            self._note("E110", "a key must be text", _span(event))
            self._value(event, (*path, "?"), depth + 1)
            return "?"
        text: str = event.value
        if event.implicit[0]:
            if text == "<<":
                self._note("E104", "merge keys are not YAML 1.2", _span(event), help="write the keys out")
            elif not isinstance(self._scalar(event), str):
                self._note("E110", f"key {text} is not text", _span(event), help=f'quote it: "{text}"')
        return text

    def _scalar(self, event: Any) -> str | int | float | bool | None:
        text: str = event.value
        if not event.implicit[0]:
            return text
        try:
            return plain(text)
        except Unclear as error:
            self._note("E111", str(error), _span(event), help=f'quote it if it is text: "{text[:40]}"')
            return text

    def note_syntax(self, error: MarkedYAMLError) -> None:
        mark, context = error.problem_mark, error.context_mark
        span = (mark.line, mark.column, mark.line, mark.column + 1) if mark else (0, 0, 0, 1)
        related: tuple[Related, ...] = ()
        if context and mark and context.line != mark.line:
            at = (context.line, context.column, context.line, context.column + 1)
            related = (Related(self._source.stretch(at), str(error.context)),)
        spot = self._source.stretch(span)
        tab = "\t" in spot.line[: spot.place.column]
        self._add(
            "E101",
            f"this is not YAML: {error.problem}",
            span,
            help="indent with spaces" * tab,
            related=related,
        )

    def note_reader(self, error: ReaderError) -> None:
        said = f"character U+{int(error.character):04X} may not stand in YAML"
        self._add("E101", said, self._byte(error.position), help="write it as an escape in double quotes")

    def _note(self, code: str, said: str, span: Span, **more: Any) -> None:
        self._add(code, said, span, **more)
        if len(self._problems) >= MAX_PROBLEMS:
            raise _Refused

    def _add(self, code: str, said: str, span: Span, **more: Any) -> None:
        self._problems.append(Diagnostic(code, said, self._source.stretch(span), **more))

    def _refuse(self, code: str, said: str, span: Span, **more: Any) -> NoReturn:
        self._note(code, said, span, **more)
        raise _Refused


def _span(event: Any) -> Span:
    start, end = event.start_mark, event.end_mark
    return (start.line, start.column, end.line, end.column)
