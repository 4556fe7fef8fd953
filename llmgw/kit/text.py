"""Columns and untrusted text, for every screen."""

import unicodedata
from collections.abc import Sequence


def safe(text: str) -> str:
    """`text` without control, format and bidi characters; what an engine or a catalog says is data."""
    if text.isprintable():
        return text
    return "".join(
        " "
        if char in "\t\r\n"
        else char
        if unicodedata.category(char)[0] != "C"
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def columns(rows: Sequence[Sequence[str]], *, gap: int = 2) -> list[str]:
    """Rows as left-aligned lines without trailing spaces; the last column is never padded."""
    if not rows:
        return []
    widths = [
        max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(max(map(len, rows)))
    ]
    return [
        (" " * gap).join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


ELLIPSIS = "…"


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` characters, its end cut where it is longer."""
    return text if len(text) <= width else text[: max(0, width - 1)] + ELLIPSIS


def fitted(rows: Sequence[Sequence[str]], width: int | None, column: int, *, least: int = 12) -> list[str]:
    """As `columns`, in lines of `width` (None = as wide as they are) as far as `column` can give way.

    Only that column is shortened, to `least` characters at most: names and numbers are never cut.
    """
    lines = columns(rows)
    excess = max(map(len, lines), default=0) - width if width is not None else 0
    if excess <= 0:
        return lines
    longest = max((len(row[column]) for row in rows if column < len(row)), default=0)
    most = max(least, longest - excess)
    return columns(
        [
            [*row[:column], shortened(row[column], most), *row[column + 1 :]] if column < len(row) else row
            for row in rows
        ]
    )


def count(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
