"""What broken YAML means: where the mistake begins, what it is, what would help.

Called by `builder` once for a file that the parser gave up on. The parser says where it gave up;
the mistake is often before that: a bracket that was not closed, a line that lies too deep. The
places are those that editors mark, but where they mark nothing.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from yaml.error import MarkedYAMLError
from yaml.parser import ParserError
from yaml.tokens import AliasToken, DocumentEndToken, FlowMappingEndToken, FlowSequenceEndToken, ScalarToken

from llmgw.catalog.marks import Span
from llmgw.catalog.stops import BRACKETS, Stop, start

TEMPLATE = re.compile(r"\{[{%#]")
LEFT_IN = "a template was left in"
FILL_IN = "write what it stands for"
_QUOTE = "quote it if it is text"
_CONFLICT = re.compile(r"<{7} ")
_DIGITS = {"x": 2, "u": 4, "U": 8}


@dataclasses.dataclass(frozen=True, slots=True)
class Broken:
    """One mistake. `related` is another place that has to do with it, and what."""

    said: str
    at: Span
    help: str = ""
    related: tuple[Span, str] | None = None
    code: str = "E101"


def broken(data: bytes, lines: Sequence[str], error: MarkedYAMLError) -> Broken:
    """The mistake in `data`, whose lines are `lines`, that made the parser stop with `error`."""
    stop = Stop(data, lines, error)
    return next(found for rule in _RULES if (found := rule(stop)) is not None)


def _one(line: int, column: int) -> Span:
    return (line, column, line, column + 1)


def _told(said: str) -> str:
    return f"this is not YAML: {said}"


def _conflict(stop: Stop) -> Broken | None:
    for line, text in enumerate(stop.lines):
        if _CONFLICT.match(text):
            said = "two versions of this file were not merged to the end"
            return Broken(said, (line, 0, line, 7), "keep one of them, and remove the marks of git")
    return None


def _template(stop: Stop) -> Broken | None:
    for line, column in _begun(stop):
        if column >= 0 and TEMPLATE.match(stop.on(line), column):
            at = (line, column, line, column + 2)
            return Broken(_told(LEFT_IN), at, FILL_IN)
    return None


def _begun(stop: Stop) -> Iterator[tuple[int, int]]:
    """Where a template may begin that the parser gave up on."""
    yield stop.began
    yield from ((stop.line, stop.column), (stop.line, stop.column - 1))
    yield from map(start, stop.opened)
    before = stop.text[: stop.column].rstrip()
    if before.endswith("}}"):
        yield stop.line, before.rfind("{{")


def _document(stop: Stop) -> Broken | None:
    """What stands below the end of the document."""
    if stop.problem != "did not find expected <document start>":
        return None
    at = (stop.line, stop.column, stop.line, max(stop.end(stop.line), stop.column + 1))
    if isinstance(stop.last, DocumentEndToken):
        return Broken("a second document begins", at, "give it a file of its own", code="E105")
    first = next((text for text in stop.lines if text.strip() and not text.startswith("#")), "")
    if first[:1] != " ":
        return None
    return Broken(_told("this does not lie as deep as the first line"), at, "begin all fields in one column")


def _colon(stop: Stop) -> Broken | None:
    """A colon after what is a value already."""
    if stop.problem != "mapping values are not allowed in this context":
        return None
    if not isinstance(stop.last, ScalarToken | AliasToken):
        return Broken(_told("a colon follows a value"), _one(stop.line, stop.column), "leave it out")
    line, column = start(stop.last)
    if line == stop.line:
        at = (line, column, line, stop.column)
        said = "this value has a colon after it"
        return Broken(_told(said), at, "quote it all, or begin a new line with the key")
    at = (line, column, line, max(stop.end(line), column + 1))
    if stop.indent(stop.line) <= stop.indent(line):
        return _no_key(at)
    deeper = (stop.line, 0, stop.line, stop.indent(stop.line))
    said = f"line {stop.line + 1} goes on with this value, because it lies deeper"
    return Broken(_told(said), at, f"indent it like line {line + 1}", (deeper, "this deep"))


def _no_key(at: Span) -> Broken:
    said = "this is neither a key nor the end of a text"
    return Broken(_told(said), at, "write KEY: VALUE, or indent the text")


def _no_colon(stop: Stop) -> Broken | None:
    """The parser says it where it gave up looking: on a later line."""
    if stop.problem != "could not find expected ':'" or stop.error.context_mark is None:
        return None
    return _no_key(_one(*stop.began))


def _quote(stop: Stop) -> Broken | None:
    """A quote that is closed nowhere, or by the next one."""
    last = stop.last
    if stop.problem == "found unexpected end of stream":
        sign = stop.on(stop.began[0])[stop.began[1] : stop.began[1] + 1]
        said = f"the text in quotes that begins on line {stop.began[0] + 1} does not end"
        at = _one(stop.line, stop.column)
        return Broken(_told(said), at, f"write {sign} at its end", (_one(*stop.began), "it begins here"))
    if not isinstance(last, ScalarToken) or last.plain or last.end_mark.line != stop.line:
        return None
    began = start(last)
    outside = stop.outside(start(stop.opened[0]) if stop.opened else began, began[0])
    if outside is None:
        return None
    said = "the text in quotes does not end on its line"
    at = _one(outside - 1, stop.end(outside - 1))
    return Broken(_told(said), at, f"write {last.style} at its end", (_one(*began), "it begins here"))


def _bracket(stop: Stop) -> Broken | None:
    """A bracket that is not closed, where what follows lies outside of it."""
    if not isinstance(stop.error, ParserError) or not stop.opened:
        return None
    outside = stop.outside(start(stop.opened[0]), start(stop.opened[0])[0])
    if outside is None and not stop.at_end and stop.sign not in ("]", "}"):
        return None
    at = _one(stop.line, stop.column)
    if outside is not None:
        at = (outside, stop.indent(outside), outside, stop.end(outside))
    began = stop.opened[-1]
    kind, sign = BRACKETS[type(began)]
    said = f"the {kind} that begins on line {began.start_mark.line + 1} does not end"
    return Broken(_told(said), at, f"write {sign} at its end", (_one(*start(began)), "it begins here"))


def _comma(stop: Stop) -> Broken | None:
    """Between brackets, a comma too many or too few; a key is taken for the end of the value before it."""
    if not isinstance(stop.error, ParserError) or not stop.opened:
        return None
    if stop.sign == ",":
        return Broken(_told("nothing is before this comma"), _one(stop.line, stop.column), "leave it out")
    if stop.sign != ":":
        return Broken(_told("no comma is before this"), _one(stop.line, stop.column), "write one")
    if not isinstance(stop.last, ScalarToken):
        return None
    line, column = start(stop.last)
    at = (line, column, line, stop.column if line == stop.line else max(stop.end(line), column + 1))
    said = "no comma is between this and the next key"
    return Broken(_told(said), at, "write it, or quote the text with the colon")


def _more(stop: Stop) -> Broken | None:
    """Something behind a value that its quote or bracket has ended."""
    last = stop.last
    ended = isinstance(last, FlowSequenceEndToken | FlowMappingEndToken) or (
        isinstance(last, ScalarToken) and not last.plain
    )
    if not ended or not isinstance(stop.error, ParserError) or last.end_mark.line != stop.line:
        return None
    return Broken(
        _told("the value ended before this"), _one(stop.line, stop.column), "leave it out, or quote it all"
    )


def _indentation(stop: Stop) -> Broken | None:
    """A line that begins where none of those around it does."""
    if not stop.column or stop.text[: stop.column].strip():
        return None
    at = (stop.line, 0, stop.line, stop.column)
    if stop.problem == "did not find expected '-' indicator":
        said = "this stands in a list and begins with no dash"
        return Broken(_told(said), at, "write one, or indent it otherwise")
    if stop.problem == "did not find expected key":
        return Broken(_told("this lies as deep as nothing above it"), at, "indent it like what it belongs to")
    return None


def _escape(stop: Stop) -> Broken | None:
    """What follows a backslash in double quotes."""
    if stop.context != "while parsing a quoted scalar":
        return None
    unknown = stop.problem == "found unknown escape character"  # told at the backslash, the others behind it
    column = stop.text.rfind("\\", 0, stop.column + unknown)
    letter = stop.text[column + 1 : column + 2]
    at = (stop.line, column, stop.line, column + 2)
    if unknown:
        hint = r"write \\ for a backslash, or use single quotes"
        return Broken(_told(f"\\{letter} is no escape"), at, hint)
    if stop.problem == "did not find expected hexdecimal number":
        return Broken(_told(f"\\{letter} needs {_DIGITS[letter]} hexadecimal digits"), at)
    if stop.problem == "found invalid Unicode character escape code":
        return Broken(_told(f"\\{letter} gives no character here"), at)
    return None


_SIGNS = {
    "while scanning an alias": "an alias",
    "while scanning an anchor": "an anchor",
    "while scanning a tag": "a tag",
    "while scanning a directive": "a directive",
}  # fmt: skip


def _sign(stop: Stop) -> Broken | None:
    """A sign of YAML where text was meant: `*H100*`."""
    line, column = stop.began
    sign = stop.on(line)[column : column + 1]
    if stop.problem == "did not find expected comment or line break":
        return Broken(
            _told(f"unquoted {sign} begins a text of several lines"), _one(stop.line, stop.column), _QUOTE
        )
    if stop.context in _SIGNS:
        said = f"unquoted {sign} begins {_SIGNS[stop.context]}, and this is none"
    elif stop.problem == "found character that cannot start any token" and sign in ("@", "`", "%"):
        said = f"no unquoted text begins with {sign}"
    else:
        return None
    at = (line, column, line, max(stop.column, column + 1) if line == stop.line else column + 1)
    return Broken(_told(said), at, _QUOTE)


def _as_told(stop: Stop) -> Broken:
    """What the parser says, where it says it."""
    at = _one(stop.line, stop.column)
    if stop.sign == "\t":
        return Broken(_told("a tab stands where only spaces may"), at, "indent with spaces")
    if stop.problem == "block sequence entries are not allowed in this context":
        return Broken(_told("a list does not begin here"), at, "begin it on the next line, or write [A, B]")
    related = None
    if stop.error.context_mark is not None and stop.began[0] != stop.line:
        related = (_one(*stop.began), stop.context)
    return Broken(_told(stop.problem), at, related=related)


_RULES: Sequence[Callable[[Stop], Broken | None]] = (
    _conflict, _template, _document, _no_colon, _colon, _quote, _bracket, _comma, _more, _indentation, _escape, _sign,
    _as_told,
)  # fmt: skip
