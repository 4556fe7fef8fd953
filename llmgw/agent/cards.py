"""The cards of this node as NVML tells them, card by card: one that cannot be read is one bad card.

Called by `agent.gpus`, in the one thread that may wait for the driver. Whatever a driver says is data:
words are decoded whatever their bytes, and a number that cannot be is a fault of its card.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes

LARGEST = 1 << 50
"""Bytes of memory that no card has."""

Charges = tuple[tuple[int, int], ...]
"""(pid, bytes)."""

_NEVER = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)
"""What a driver says that will say the same the next time."""

_UUID = re.compile(r"[!-~]{1,96}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """One card or MIG slice. Memory in bytes; `fault` is why it is no use, empty = it is.

    `charged` is (pid, bytes) of everybody who computes there; bytes are 0 where the driver does not tell them. None =
    it does not say who does, and `untold` is why; empty = this driver never does. `drawn` are those who only draw.
    `used` includes what is `reserved` for the driver itself.
    """

    number: int
    uuid: str
    name: str
    total: int = 0
    used: int | None = None
    reserved: int = 0
    charged: Charges | None = ()
    drawn: Charges = ()
    untold: str = ""
    fault: str = ""


def start() -> str:
    """Load NVML. Returns why it cannot be; empty = it is."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _why(error)
    return ""


def end() -> None:
    """Let go of NVML."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def read() -> tuple[Card, ...] | None:
    """Every card, or its slices; None where NVML cannot even count them. May take as long as the driver likes."""
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return None
    return tuple(card for number in range(count) for card in _card(number))


def _card(number: int) -> Iterator[Card]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    except pynvml.NVMLError as error:
        yield _bad(number, _why(error))
        return
    for each in list(_slices(handle)) or [handle]:
        yield _device(number, each)


def _slices(handle: object) -> Iterator[object]:
    """The MIG slices of a card; nothing where it has none."""
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
        if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
            return
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return  # a card without MIG says so by an error
    for index in range(most):
        with contextlib.suppress(pynvml.NVMLError):  # a slice that was not made
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


def _device(number: int, handle: object) -> Card:
    charged, untold = _processes(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    try:
        uuid = _text(pynvml.nvmlDeviceGetUUID, handle)
        name = _text(pynvml.nvmlDeviceGetName, handle)
        total, used, reserved = _memory(handle)
    except pynvml.NVMLError as error:
        return _bad(number, _why(error), charged)
    if not _UUID.fullmatch(uuid):
        return _bad(number, f"its UUID {uuid[:96]!r} cannot be used", charged)
    if max(total, used) >= LARGEST:
        said = f"it says that {show_bytes(used)} of {show_bytes(total)} of memory are used, which no card has"
        return _bad(number, said, charged)
    computing = {pid for pid, _ in charged or ()}
    drawn, _ = _processes(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
    drawing = tuple((pid, amount) for pid, amount in drawn or () if pid not in computing)
    return Card(number, uuid, name, total, used, reserved, charged, drawing, untold)


def _bad(number: int, why: str, charged: Charges | None = ()) -> Card:
    return Card(number, f"card-{number}", "unknown", charged=charged, fault=f"card {number}: {why}")


def _memory(handle: object) -> tuple[int, int, int]:
    """Total, used and of it reserved. Drivers too old to tell the reserve count it in neither of the others."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used), 0
    reserved = int(memory.reserved)
    return int(memory.total), int(memory.used) + reserved, reserved


def _processes(tell: Callable[[object], Any], handle: object) -> tuple[Charges | None, str]:
    """Who `tell` names; None where it does not, and why: empty = it never will."""
    try:
        found = tell(handle)
    except pynvml.NVMLError as error:
        return None, "" if error.value in _NEVER else _why(error)
    return tuple((int(each.pid), min(int(each.usedGpuMemory or 0), LARGEST)) for each in found), ""


def _text(tell: Callable[..., str], *about: object) -> str:
    """What the binding tells, in words: it decodes strictly, and a driver's bytes may be any."""
    try:
        said: str | bytes = tell(*about)
    except UnicodeDecodeError as error:
        said = error.object
    return safe(said.decode(errors="replace") if isinstance(said, bytes) else said)


def _why(error: pynvml.NVMLError) -> str:
    return _text(str, error)
