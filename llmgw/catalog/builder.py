"""Bytes of one YAML file → plain Python data that remembers where each part was written.

Called by `load` for every file; `reading` makes documents of the data. The C parser finds the
events, this module gives them their YAML 1.2 meaning and refuses what a catalog has no use for:
tags, merge keys, several documents, depth, and aliases that multiply.

    E101 no YAML    E102 key twice    E103 tag       E104 alias     E105 second document
    E106 too deep   E107 too large    E108 no UTF-8  E110 key       E111 unclear number
"""

import functools
from collections.abc import Mapping
from typing import Any, NoReturn

from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its types do not export it
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

from llmgw.catalog.diagnostics import MAX_PROBLEMS, Diagnostic, Related
from llmgw.catalog.marks import MAX_DEPTH, MAX_NODES, Mark, Path, Span, marks, span
from llmgw.catalog.scalars import NUMERIC, WORDS, Unclear, plain
from llmgw.catalog.syntax import FILL_IN, LEFT_IN, TEMPLATE, broken
from llmgw.catalog.tree import LINES, Tree

MAX_BYTES = 1 << 20
_SHORT = 64  # characters of a key that is remembered: one in a hostile file may be as long as the file


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
    """One file on its way to a `Tree`. `_path` leads to the collection that is being read."""

    def __init__(self, source: Tree) -> None:
        self._source = source
        self._problems: list[Diagnostic] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._open: set[str] = set()
        self._merging: list[dict[str, object]] = []
        self._path: list[str | int] = []
        self._nodes = 0

    def tree(self, value: object, *, parsed: bool) -> Tree:
        source = self._source
        return Tree(source.file, source.data, value, tuple(self._problems), parsed)

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
        lines = LINES.split(self._source.data[:position].decode("utf-8-sig", errors="replace"))
        return (len(lines) - 1, len(lines[-1]), len(lines) - 1, len(lines[-1]) + 1)

    def document(self) -> object:
        """The only document, or None with a warning where the file is empty."""
        self._next = CParser(self._source.data).get_event
        self._next()
        value = None if type(self._next()) is StreamEndEvent else self._only_document()
        for mapping in self._merging:
            self._merge(mapping)
        if value is None:
            self._note("W501", "the file is empty", (0, 0, 0, 1), help="remove it, or write a document")
        return value

    def _only_document(self) -> object:
        value = self._value(self._next(), None)
        self._next()
        after = self._next()
        if type(after) is not StreamEndEvent:
            self._note("E105", "a second document begins", span(after), help="give it a file of its own")
        return value

    def _value(self, event: Any, step: str | int | None) -> object:
        """What `event` begins; `step` leads to it from the collection that holds it, None to the document."""
        kind = type(event)
        if kind is ScalarEvent and event.anchor is None and event.tag is None:
            self._nodes += 1
            if self._nodes > MAX_NODES:
                self._refuse_size(event)
            text: str = event.value
            if not event.implicit[0] or (text and text[0] not in NUMERIC and text not in WORDS):
                return text
            return self._scalar(event)
        if kind is AliasEvent:
            return self._alias(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse_size(event)
        if event.tag is not None:
            self._note("E103", "tags have no meaning here", span(event), help="leave the tag out")
        if event.anchor is not None:
            return self._anchored(event, step)
        return self._scalar(event) if kind is ScalarEvent else self._collection(event, step)

    def _collection(self, event: Any, step: str | int | None) -> object:
        outside = self._path
        if step is not None:
            self._path = [*outside, step]
        if len(self._path) >= MAX_DEPTH:
            self._refuse("E106", f"this lies more than {MAX_DEPTH} levels deep", span(event))
        value = self._mapping() if type(event) is MappingStartEvent else self._sequence()
        self._path = outside
        return value

    def _anchored(self, event: Any, step: str | int | None) -> object:
        name, before = event.anchor, self._nodes
        self._open.add(name)
        value = self._scalar(event) if type(event) is ScalarEvent else self._collection(event, step)
        self._open.discard(name)
        self._anchors[name] = (value, self._nodes - before + 1)
        return value

    def _alias(self, event: Any) -> object:
        if event.anchor in self._open:
            self._refuse("E104", f"alias *{event.anchor} stands inside its own anchor", span(event))
        if event.anchor not in self._anchors:
            said = f"alias *{event.anchor} has no anchor before it"
            self._refuse("E104", said, span(event), help=f'quote it if it is text: "*{event.anchor[:40]}"')
        value, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._refuse_size(event)
        return value

    def _refuse_size(self, event: Any) -> NoReturn:
        self._refuse("E107", f"the file says more than {MAX_NODES} things, aliases written out", span(event))

    def _sequence(self) -> list[object]:
        found: list[object] = []
        following = self._next
        while type(event := following()) is not SequenceEndEvent:
            found.append(self._value(event, len(found)))
        return found

    def _mapping(self) -> dict[str, object]:
        found: dict[str, object] = {}
        following = self._next
        while type(event := following()) is not MappingEndEvent:
            key = (
                event.value
                if type(event) is ScalarEvent and _is_text(event.value)
                else self._key(event, found)
            )
            value = self._value(following(), key)
            if key in found:
                self._note_twice(key, event)
            else:
                found[key] = value
        return found

    @functools.cached_property
    def _marks(self) -> Mapping[Path, Mark]:
        return marks(self._source.data)

    def _note_twice(self, key: str, event: Any) -> None:
        on_key, on_value = self._marks[*self._path, key]
        earlier = Related(self._source.stretch(on_key or on_value), "first here")
        said = f"key `{key}` is written twice"
        self._note("E102", said, span(event), help="keep one of them", related=(earlier,))

    def _key(self, event: Any, found: dict[str, object]) -> str:
        """The text of a key of `found`; what is no text is noted and skipped under a name that nothing has."""
        if type(event) is not ScalarEvent:
            self._value(event, "?")
            self._note_no_text(event)
            return "?"
        text: str = event.value
        if event.implicit[0] and not _is_text(text):
            self._note_key(text, event, found)
        return text

    def _note_no_text(self, event: Any) -> None:
        spot = self._source.stretch(span(event))
        line, column, *_ = span(event)
        if column and TEMPLATE.match(spot.line, column - 1):
            self._note("E110", LEFT_IN, (line, column - 1, line, column + 1), help=FILL_IN)
        elif not any(problem.place == spot.place for problem in self._problems):
            self._note("E110", "a key must be text", span(event))

    def _note_key(self, text: str, event: Any, found: dict[str, object]) -> None:
        if text == "<<":
            self._note("E104", "merge keys are not YAML 1.2", span(event), help="write the keys out")
            self._merging.append(found)
        elif not isinstance(self._scalar(event), str):
            self._note("E110", f"key {text} is not text", span(event), help=f'quote it: "{text}"')

    def _merge(self, mapping: dict[str, object]) -> None:
        """Do what a merge key asks for, so that nothing is called missing or wrong because of it."""
        value = mapping.pop("<<", None)
        for merged in value if isinstance(value, list) else [value]:
            if isinstance(merged, dict):
                self._merge(merged)
                mapping.update((key, inner) for key, inner in merged.items() if key not in mapping)

    def _scalar(self, event: Any) -> str | int | float | bool | None:
        text: str = event.value
        if not event.implicit[0]:
            return text
        try:
            return plain(text)
        except Unclear as error:
            self._note("E111", str(error), span(event), help=f'quote it if it is text: "{text[:40]}"')
            return text

    def note_syntax(self, error: MarkedYAMLError) -> None:
        source = self._source
        found = broken(source.data, source.lines, error)
        spot = source.stretch(found.at)
        if any(problem.place == spot.place for problem in self._problems):
            return  # a template, told as the key that it looked like
        related = tuple(Related(source.stretch(at), said) for at, said in filter(None, [found.related]))
        self._problems.append(Diagnostic(found.code, found.said, spot, found.help, related))

    def note_reader(self, error: ReaderError) -> None:
        said = f"character U+{int(error.character):04X} may not stand in YAML"
        self._add("E101", said, self._byte(error.position), help="write it as an escape in double quotes")

    def _note(self, code: str, said: str, at: Span, **more: Any) -> None:
        self._add(code, said, at, **more)
        if len(self._problems) >= MAX_PROBLEMS:
            raise _Refused

    def _add(self, code: str, said: str, at: Span, **more: Any) -> None:
        self._problems.append(Diagnostic(code, said, self._source.stretch(at), **more))

    def _refuse(self, code: str, said: str, at: Span, **more: Any) -> NoReturn:
        self._note(code, said, at, **more)
        raise _Refused


def _is_text(key: str) -> bool:
    """Whether an unquoted key is the text that it looks like. Most files have the same few keys."""
    return _short_is_text(key) if len(key) <= _SHORT else _looks_text(key)


def _looks_text(key: str) -> bool:
    try:
        return key != "<<" and isinstance(plain(key), str)
    except Unclear:
        return False


_short_is_text = functools.lru_cache(maxsize=4096)(_looks_text)
