"""The outermost level of a JSON object, read in steps of bounded work: no body makes others wait.

Called by `gateway.body`. A step looks at CHUNK bytes and hands the event loop back; what is nested is
not looked into, only its end is found. What is wrong in there is for the engine to say.
"""

import dataclasses
import itertools
import re
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that pauses at each `yield`; its value is the result."""

CHUNK = 16 * 1024
"""Bytes of a step: 3 ms, if each of them is a bracket."""
DEPTH = 1024
MEMBERS = 1024
NUMBER = 4096

_SPACE = re.compile(rb"[ \t\n\r]*+")
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SCALAR = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"{}[]"))
_STEP = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


class Malformed(ValueError):
    """It is no JSON object, or none that anybody needs; its text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """Where a key and its value stand: first byte, and the one behind the last. A key has its quotes."""

    key: tuple[int, int]
    value: tuple[int, int]


def to_end(steps: Steps[T]) -> T:
    """The result of `steps`, taken without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def members(raw: bytes) -> Steps[list[Member]]:
    """The members of the object that `raw` is, in their order. Raises Malformed."""
    found: list[Member] = []
    at = yield from _mark(raw, 0, b"{")
    if raw[at : at + 1] == b"}":
        at = yield from _space(raw, at + 1)
    else:
        while True:
            member = yield from _member(raw, at)
            found.append(member)
            at = yield from _space(raw, member.value[1])
            if raw[at : at + 1] != b",":
                break
            if len(found) == MEMBERS:
                raise Malformed(f"it has more than {MEMBERS} keys")
            at = yield from _space(raw, at + 1)
        at = yield from _mark(raw, at, b"}")
    if at != len(raw):
        raise Malformed(f"unexpected character behind its end, at byte {at}")
    return found


def _member(raw: bytes, at: int) -> Steps[Member]:
    if raw[at : at + 1] != b'"':
        raise Malformed(f"a key is missing at byte {at}")
    end = yield from _string(raw, at)
    start = yield from _mark(raw, end, b":")
    return Member((at, end), (start, (yield from _value(raw, start))))


def _mark(raw: bytes, at: int, mark: bytes) -> Steps[int]:
    """Behind `mark` and the space around it."""
    at = yield from _space(raw, at)
    if raw[at : at + 1] != mark:
        raise Malformed(f"{mark.decode()} is missing at byte {at}")
    return (yield from _space(raw, at + 1))


def _space(raw: bytes, at: int) -> Steps[int]:
    while (match := _SPACE.match(raw, at, at + CHUNK)) and match.end() == at + CHUNK:
        at = match.end()
        yield
    return match.end() if match else at


def _value(raw: bytes, at: int) -> Steps[int]:
    """The end of the value that begins at `at`."""
    first = raw[at : at + 1]
    if first == b'"':
        return (yield from _string(raw, at))
    if first in (b"{", b"["):
        return (yield from _nested(raw, at))
    if match := _SCALAR.match(raw, at, at + NUMBER):
        return match.end()
    raise Malformed(f"a value is missing at byte {at}")


def _string(raw: bytes, at: int) -> Steps[int]:
    at += 1
    while match := _TEXT.match(raw, at, at + CHUNK):
        if raw[match.end() : match.end() + 1] == b'"':
            return match.end() + 1
        if match.end() == at or match.end() == len(raw):
            break
        at = match.end()
        yield
    raise Malformed("a string has no end")


def _nested(raw: bytes, at: int) -> Steps[int]:
    depth, quoted = 0, False
    while chunk := raw[at : at + CHUNK]:
        brackets, size, still_quoted = _brackets(chunk, quoted)
        depths = list(itertools.accumulate(map(_STEP.__getitem__, brackets), initial=depth))
        if 0 in depths[1:]:
            return at + _end(chunk, depth, quoted)
        if max(depths) >= DEPTH:
            raise Malformed(f"it is nested more than {DEPTH} deep")
        if not size:
            break
        at, depth, quoted = at + size, depths[-1], still_quoted
        yield
    raise Malformed("it ends in the middle")


def _brackets(chunk: bytes, quoted: bool) -> tuple[bytes, int, bool]:
    """The brackets of `chunk` outside strings, how much of it was read, and whether that ends in a string."""
    text, size = _ESCAPE.sub(b"", chunk), len(chunk)
    if text.endswith(b"\\"):  # its other half is in the next chunk
        text, size = text[:-1], size - 1
    parts = text.split(b'"')
    outside = b"".join(parts[quoted::2])
    return outside.translate(None, _NO_BRACKET), size, quoted ^ (len(parts) % 2 == 0)


def _end(chunk: bytes, depth: int, quoted: bool) -> int:
    """Behind the bracket in `chunk` that closes what was opened `depth` times."""
    rest = _TEXT.match(chunk)
    for token in _TOKEN.finditer(chunk, rest.end() + 1 if quoted and rest else 0):
        depth += _STEP.get(chunk[token.start()], 0)
        if not depth:
            return token.end()
    raise Malformed("a backslash stands outside a string")
