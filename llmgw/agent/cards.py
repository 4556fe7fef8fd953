"""The cards of this node as NVML tells them, card by card: one that cannot be read is one bad card.

Called by `agent.gpus`, in the one thread that may wait for the driver. Whatever a driver says is data:
words are decoded whatever their bytes, and a number that cannot be is a fault of its card.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator

import pynvml

from llmgw.kit.text import safe
from llmgw.kit.units import show_bytes

LARGEST = 1 << 50
"""Bytes of memory that no card has."""

_UUID = re.compile(r"[!-~]{1,96}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """One card or MIG slice. Memory in bytes; `fault` is why it is no use, empty = it is.

    `charged` is (pid, bytes) of everybody who computes there; bytes are 0 where the driver does not tell them.
    """

    number: int
    uuid: str
    name: str
    total: int = 0
    used: int | None = None
    charged: tuple[tuple[int, int], ...] = ()
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
    charged = _processes(handle)
    try:
        uuid = _text(pynvml.nvmlDeviceGetUUID, handle)
        name = _text(pynvml.nvmlDeviceGetName, handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return _bad(number, _why(error), charged)
    if not _UUID.fullmatch(uuid):
        return _bad(number, f"its UUID {uuid[:96]!r} cannot be used", charged)
    total, used = int(memory.total), int(memory.used)
    if max(total, used) >= LARGEST:
        said = f"it says that {show_bytes(used)} of {show_bytes(total)} of memory are used, which no card has"
        return _bad(number, said, charged)
    return Card(number, uuid, name, total, used, charged)


def _bad(number: int, why: str, charged: tuple[tuple[int, int], ...] = ()) -> Card:
    return Card(number, f"card-{number}", "unknown", charged=charged, fault=f"card {number}: {why}")


def _processes(handle: object) -> tuple[tuple[int, int], ...]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return ()
    return tuple((int(each.pid), min(int(each.usedGpuMemory or 0), LARGEST)) for each in found)


def _text(tell: Callable[..., str], *about: object) -> str:
    """What the binding tells, in words: it decodes strictly, and a driver's bytes may be any."""
    try:
        said: str | bytes = tell(*about)
    except UnicodeDecodeError as error:
        said = error.object
    return safe(said.decode(errors="replace") if isinstance(said, bytes) else said)


def _why(error: pynvml.NVMLError) -> str:
    return _text(str, error)
