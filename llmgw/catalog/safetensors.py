"""The header of a safetensors file, and the index of a model of several: which tensors, how large.

Called by `transport.ranges` with the first bytes of each file. The bytes come from whoever published the
model: everything is bounded before it is believed.
"""

import dataclasses
import json
import struct
from collections.abc import Mapping

from llmgw.catalog.facts import Tensor, Unusable

LARGEST = 8 << 20
"""Bytes of a header; the format allows 100 MB, models of hundreds of experts use half of one."""
MOST = 500_000

_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """Which files hold the tensors, and the bytes of all of them (0 where it does not say)."""

    files: tuple[str, ...]
    total: int = 0


def header_size(start: bytes) -> int:
    """Bytes of the header that begins with `start`, its 8 bytes of length included. Raises Unusable."""
    if len(start) < 8:
        raise Unusable("a safetensors file has 8 bytes at least")
    length = int(struct.unpack("<Q", start[:8])[0])
    if not 2 <= length <= LARGEST:
        raise Unusable(f"the safetensors header says it has {length} bytes, {LARGEST} are the most")
    return 8 + length


def header(data: bytes) -> dict[str, Tensor]:
    """The tensors that the header in `data` lists. Raises Unusable."""
    found = parsed(data[8 : header_size(data)], "safetensors header")
    if len(found) > MOST:
        raise Unusable(f"the safetensors header lists {len(found)} tensors, {MOST} are the most")
    return {name: _tensor(name, entry) for name, entry in found.items() if name != "__metadata__"}


def parsed(data: bytes, what: str) -> dict[str, object]:
    """The JSON object in `data`. Raises Unusable."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"the {what} is no JSON") from error
    if not isinstance(found, dict):
        raise Unusable(f"the {what} is no JSON object")
    return found


def _tensor(name: str, entry: object) -> Tensor:
    match entry:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            all(type(size) is int and size >= 0 for size in shape) and 0 <= start <= end < 1 << 62
        ):
            if kind in _BITS and end - start != _bytes(shape, _BITS[kind]):
                raise Unusable(f"tensor {name[:80]!r}: its offsets and its shape disagree")
            return Tensor(name, tuple(shape), end - start)
        case _:
            raise Unusable(f"tensor {name[:80]!r} has no dtype, shape and data_offsets")


def _bytes(shape: list[int], bits: int) -> int:
    elements = 1
    for size in shape:
        elements *= size
        if elements > 1 << 62:
            raise Unusable("a tensor is larger than any file")
    return (elements * bits + 7) // 8


def index(data: bytes) -> Index:
    """The index in `data`. Raises Unusable; file names that leave their directory are refused."""
    found = parsed(data, "safetensors index")
    named = found.get("weight_map")
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named.values()):
        raise Unusable("the safetensors index has no weight_map")
    files = tuple(sorted(set(named.values())))
    if len(files) > 4096 or any("/" in name or name.startswith(".") for name in files):
        raise Unusable("the safetensors index names files that no model has")
    metadata = found.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else 0
    return Index(files, int(total) if isinstance(total, int | float) and 0 < total < 1 << 62 else 0)
