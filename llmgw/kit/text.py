"""Columns and untrusted text, for every screen."""

import unicodedata
from collections.abc import Sequence


def safe(text: str) -> str:
    """`text` without control, format and bidi characters; what an engine or a catalog says is data."""
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


def count(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
