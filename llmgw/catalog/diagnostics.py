"""What is wrong with a catalog, where, and what would help: values, and how people are shown them.

Made by `builder` (E1xx), `reading` (E2xx) and `checks` (E2xx-W5xx), collected by `load`; printed by
`llmgw validate` and carried by `Invalid` to whoever asked for the catalog. A diagnostic brings its
own source line, so it can be shown where the file is not. `reports` has what programs read.
"""

import dataclasses
import operator
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from llmgw.catalog.model import Place
from llmgw.errors import CatalogInvalid
from llmgw.kit.text import count, safe

Severity = Literal["error", "warning"]
MAX_PROBLEMS = 100
"""Of one file; what follows the hundredth is seldom news."""
SHOWN = 50
"""Of one catalog, to people: a screenful is read, and GitHub shows no more annotations. `foremost` chooses them."""
TOLD = 25_000
"""Of one catalog, to a program: code scanning refuses a run that has more."""
_LONGEST = 400  # characters of a sentence: a name of a megabyte is not shown whole
_WIDEST = 160  # characters of a source line that are shown around the place


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A stretch of one source line: its place, its length in characters, and the whole line."""

    place: Place
    width: int = 1
    line: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Related:
    """Another place that has to do with it, and what it has to do with it."""

    spot: Spot
    said: str


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. `said` is one sentence with its numbers; `help` is one imperative, or empty."""

    code: str
    said: str
    spot: Spot
    help: str = ""
    related: tuple[Related, ...] = ()

    def __post_init__(self) -> None:
        for field in ("said", "help"):
            text: str = getattr(self, field)
            if len(text) > _LONGEST:
                object.__setattr__(self, field, f"{text[:200]} … {text[-150:]}")

    @property
    def severity(self) -> Severity:
        return "warning" if self.code.startswith("W") else "error"

    @property
    def place(self) -> Place:
        return self.spot.place


class Invalid(CatalogInvalid):
    """The catalog was refused as a whole; `diagnostics` are all its problems, warnings too."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(ordered(diagnostics))
        super().__init__(
            f"cannot use the catalog: {summary(self.diagnostics)}", help=_first(self.diagnostics)
        )


_IN_ORDER = operator.attrgetter(
    "spot.place.file", "spot.place.line", "spot.place.column", "code", "said", "help"
)


def _first(diagnostics: Sequence[Diagnostic]) -> str:
    first = next((item for item in diagnostics if item.severity == "error"), None)
    return f"begin with {concise(first)}" if first else ""


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each problem once, by file, line and column."""
    found = sorted(diagnostics, key=_IN_ORDER)
    return [item for item, before in zip(found, (None, *found), strict=False) if item != before]


def foremost(diagnostics: Sequence[Diagnostic], most: int) -> tuple[Sequence[Diagnostic], int]:
    """At most `most` of them, and how many that leaves out: errors before warnings then, each in their order."""
    if len(diagnostics) <= most:
        return diagnostics, 0
    return sorted(diagnostics, key=lambda item: item.severity)[:most], len(diagnostics) - most


def the_rest(left: int) -> str:
    """What is said of `left` problems that are not shown."""
    all_told = left + SHOWN <= TOLD
    return f"and {count(left, 'more problem')}; llmgw validate -o json has {'all' if all_told else TOLD}"


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """`3 errors and 1 warning in 2 files`."""
    errors = sum(item.severity == "error" for item in diagnostics)
    counted = [(errors, "error"), (len(diagnostics) - errors, "warning")]
    said = " and ".join(count(number, noun) for number, noun in counted if number)
    return f"{said or 'no problem'} in {count(len({item.place.file for item in diagnostics}), 'file')}"


def text(diagnostic: Diagnostic) -> str:
    """The problem with its source lines and carets, over several lines."""
    spots = [diagnostic.spot, *(item.spot for item in diagnostic.related)]
    margin = max(len(str(spot.place.line)) for spot in spots)
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {safe(diagnostic.said)}"]
    lines += _excerpt(diagnostic.spot, margin, arrow="-->", mark="^", label="")
    for item in diagnostic.related:
        lines += _excerpt(item.spot, margin, arrow=":::", mark="-", label=item.said)
    if diagnostic.help:
        lines.append(f"{' ' * margin} = help: {safe(diagnostic.help)}")
    return "\n".join(lines)


def _excerpt(spot: Spot, margin: int, *, arrow: str, mark: str, label: str) -> Iterator[str]:
    gutter = " " * margin
    yield f"{gutter}{arrow} {_where(spot.place)}"
    if not spot.line.strip():
        return
    before, marked, after = _window(spot)
    yield f"{gutter} |"
    yield f"{spot.place.line:>{margin}} | {before}{marked}{after}".rstrip()
    yield f"{gutter} | {' ' * _cells(before)}{mark * max(_cells(marked), 1)} {safe(label)}".rstrip()


def _where(place: Place) -> str:
    return f"{safe(place.file)}:{place.line}:{place.column}"


def _window(spot: Spot) -> tuple[str, str, str]:
    """The line before, at and after the place, harmless to print and of bounded length."""
    start = spot.place.column - 1
    end = start + min(spot.width, _WIDEST // 2)
    first = max(0, start - _WIDEST // 2)
    before, after = spot.line[first:start], spot.line[end : first + _WIDEST]
    return safe(before), safe(spot.line[start:end]), safe(after)


def _cells(shown: str) -> int:
    if shown.isascii():
        return len(shown)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in shown)


def concise(diagnostic: Diagnostic) -> str:
    """The problem in one line, as editors and grep read it: `file:line:column: CODE said (help)`."""
    hint = f" ({safe(diagnostic.help)})" if diagnostic.help else ""
    return f"{_where(diagnostic.place)}: {diagnostic.code} {safe(diagnostic.said)}{hint}"


def as_text(diagnostics: Sequence[Diagnostic]) -> str:
    """The foremost problems with their source lines, and how many more there are."""
    return _joined(diagnostics, text, "\n\n")


def as_concise(diagnostics: Sequence[Diagnostic]) -> str:
    """The foremost problems, one a line, and how many more there are."""
    return _joined(diagnostics, concise, "\n")


def _joined(diagnostics: Sequence[Diagnostic], show: Callable[[Diagnostic], str], gap: str) -> str:
    shown, left = foremost(diagnostics, SHOWN)
    return gap.join([*map(show, shown), *([the_rest(left)] if left else [])])
