"""The header of a GGUF file, versions 2 and 3: its metadata and its tensor table.

Called by `transport.ranges` with the first bytes of a file, again with more of them after `More`. The
bytes come from whoever published the model: every count is bounded before anything is made of it.
"""

import dataclasses
import math
import struct
from collections.abc import Mapping

from llmgw.catalog.facts import Tensor, Unusable

LARGEST = 64 << 20
"""Bytes of a header: the vocabulary is in it."""
MOST_KEYS = 65_536
MOST_TENSORS = 65_536
MOST_ITEMS = 4 << 20
LONGEST_TEXT = 4 << 20
_KEPT_TEXT = 4096
_KEPT_ITEMS = 4096

Value = int | float | bool | str | tuple[int | float | bool, ...]


class More(Exception):
    """The header goes on beyond the bytes that were given; `need` of them at least are needed."""

    def __init__(self, need: int) -> None:
        super().__init__(f"{need} bytes are needed")
        self.need = need


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says before its data.

    `metadata` leaves out long texts and long lists; `lengths` has the number of items of every list.
    `tensors` have shapes with the fastest dimension first, as the format has them.
    """

    version: int
    metadata: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: Mapping[str, Tensor]


_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_TEXT, _LIST = 8, 9

# (elements, bytes) of one block of each tensor type; numbers are those of the format.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36),
}  # fmt: skip


def parse(data: bytes, size: int = 0) -> Header:
    """The header that `data` begins with. `size` = bytes of the whole file, 0 where it is not known.

    Raises More where the header is longer than `data`, Unusable where it cannot be one.
    """
    return _Reader(data, size).header()


class _Reader:
    """A position in the bytes; everything that is taken is checked against them first."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def header(self) -> Header:
        if self._take(4) != b"GGUF":
            raise Unusable("this is no GGUF file: it does not begin with GGUF")
        version = self._u32()
        if version not in (2, 3):
            wrong = "big-endian" if version in (2 << 24, 3 << 24) else f"version {version}"
            raise Unusable(f"GGUF {wrong} cannot be read, versions 2 and 3 can")
        tensors = self._bounded(self._u64(), MOST_TENSORS, "tensors")
        keys = self._bounded(self._u64(), MOST_KEYS, "keys")
        metadata: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(keys):
            self._pair(metadata, lengths)
        return Header(version, metadata, lengths, self._table(tensors))

    def _pair(self, metadata: dict[str, Value], lengths: dict[str, int]) -> None:
        name = self._text(keep=True)
        kind = self._u32()
        if kind == _LIST:
            lengths[name], items = self._list()
            if items is not None:
                metadata[name] = items
        elif kind == _TEXT:
            text = self._text(keep=False)
            if text:
                metadata[name] = text
        else:
            metadata[name] = self._scalar(kind)

    def _list(self) -> tuple[int, tuple[int | float | bool, ...] | None]:
        kind = self._u32()
        length = self._bounded(self._u64(), MOST_ITEMS, "items of a list")
        if kind == _TEXT:
            for _ in range(length):
                self._skip(self._bounded(self._u64(), LONGEST_TEXT, "bytes of a text"))
            return length, None
        form = self._form(kind)
        raw = self._take(length * struct.calcsize(form))
        if length > _KEPT_ITEMS:
            return length, None
        return length, struct.unpack(f"<{length}{form[1]}", raw)

    def _table(self, count: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        last, end = "", 0
        for _ in range(count):
            name = self._text(keep=True)
            dimensions = self._bounded(self._u32(), 8, "dimensions")
            shape = tuple(self._u64() for _ in range(dimensions))
            kind, offset = self._u32(), self._u64()
            size = _bytes(name, shape, kind)
            if offset + size > end:
                last, end = name, offset + size
            found[name] = Tensor(name, shape, size)
        # Offsets count from where the data begins, which is here or a little later.
        if self._size and self._at + end > self._size:
            raise Unusable(f"tensor {last[:80]!r} ends beyond the file: the file is cut short")
        return found

    def _scalar(self, kind: int) -> int | float | bool:
        form = self._form(kind)
        value: int | float | bool = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    @staticmethod
    def _form(kind: int) -> str:
        if kind not in _SCALARS:
            raise Unusable(f"GGUF value of type {kind} cannot be read")
        return _SCALARS[kind]

    def _text(self, *, keep: bool) -> str:
        """A text; one that nobody needs whole is skipped and comes back empty."""
        length = self._bounded(self._u64(), LONGEST_TEXT, "bytes of a text")
        if length > _KEPT_TEXT:
            if keep:
                raise Unusable(f"a name in this GGUF file has {length} bytes, {_KEPT_TEXT} are the most")
            self._skip(length)
            return ""
        return self._take(length).decode("utf-8", errors="replace")

    def _u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _u64(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _bounded(self, value: int, most: int, what: str) -> int:
        if value > most:
            raise Unusable(f"this GGUF file says it has {value} {what}, {most} are the most")
        return value

    def _take(self, length: int) -> bytes:
        start = self._at
        self._skip(length)
        return self._data[start : self._at]

    def _skip(self, length: int) -> None:
        end = self._at + length
        if end > LARGEST:
            raise Unusable(f"the GGUF header is longer than {LARGEST} bytes")
        if end > len(self._data):
            if self._size and end > self._size:
                raise Unusable("the GGUF header ends beyond the file: the file is cut short")
            raise More(end)
        self._at = end


def _bytes(name: str, shape: tuple[int, ...], kind: int) -> int:
    elements = math.prod(shape)
    if elements > 1 << 50:
        raise Unusable(f"tensor {name[:80]!r} is larger than any file")
    if kind not in _BLOCKS:
        raise Unusable(f"tensor {name[:80]!r} has type {kind}, which is not known")
    of, size = _BLOCKS[kind]
    return -(-elements // of) * size
