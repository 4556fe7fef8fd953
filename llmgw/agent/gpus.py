"""The cards of this node through NVML, card by card: one that fails is one bad card.

`agent.inventory` reads them, `agent.sweep` asks whether a dead tree's memory is back. Without NVML no
cards are known, which is not the same as none being free.
"""

import contextlib
from collections.abc import Collection, Iterator

import pynvml

from llmgw.agent import procfs
from llmgw.fleet.node import Gpu


class Gpus:
    """NVML, loaded once for the life of the agent. `known` is False where there is none."""

    def __init__(self) -> None:
        self.known = False
        self.said = ""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.said = str(error)
        else:
            self.known = True

    def close(self) -> None:
        if self.known:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def read(self, ours: Collection[int]) -> tuple[Gpu, ...] | None:
        """Every card or MIG slice; None without NVML. Memory of pids that are not `ours` is foreign."""
        if not self.known:
            return None
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return None
        return tuple(gpu for index in range(count) for gpu in _card(index, ours))

    def held(self, pids: Collection[int], cards: Collection[str] = ()) -> str:
        """Which card still charges one of `pids`, in words; empty = none does.

        On `cards`, by UUID, whoever has ended counts: a tree that died at once left no pid to ask for.
        """
        if not self.known or not (pids or cards):
            return ""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return ""
        found = (_charged(index, pids, cards) for index in range(count))
        return next((said for said in found if said), "")


def _charged(index: int, pids: Collection[int], cards: Collection[str]) -> str:
    """What the card `index` still charges the dead for. One that is lost charges nobody, and hides no other."""
    with contextlib.suppress(pynvml.NVMLError):
        card = pynvml.nvmlDeviceGetHandleByIndex(index)
        for handle in list(_slices(card)) or [card]:
            whose = cards and _text(pynvml.nvmlDeviceGetUUID(handle)) in cards
            for pid, used in _processes(handle):
                if pid in pids or (whose and procfs.live(pid) is None):
                    return f"GPU {index} still charges {used >> 20} MiB to pid {pid}, which has ended"
    return ""


def _card(index: int, ours: Collection[int]) -> Iterator[Gpu]:
    """The card `index`, or its slices. A card that cannot be read is one unhealthy card."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        slices = list(_slices(handle))
        for each in slices or [handle]:
            yield _gpu(each, ours)
    except pynvml.NVMLError as error:
        yield Gpu(uuid=f"card-{index}", name="unknown", healthy=False, said=f"card {index}: {error}")


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


def _gpu(handle: object, ours: Collection[int]) -> Gpu:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_total=int(memory.total),
        memory_used=int(memory.used),
        foreign=_foreign(_processes(handle), int(memory.used), ours),
    )


def _foreign(charged: list[tuple[int, int]], used: int, ours: Collection[int]) -> int:
    """Bytes of strangers. Where the driver does not tell one's, it may have all of `used` that is not known as ours."""
    theirs = [amount for pid, amount in charged if pid not in ours]
    if all(theirs):
        return sum(theirs)
    return max(sum(theirs), used - sum(amount for pid, amount in charged if pid in ours))


def _processes(handle: object) -> list[tuple[int, int]]:
    """(pid, bytes) of everybody who computes there. Bytes are 0 where the driver does not tell them."""
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return []
    return [(int(process.pid), int(process.usedGpuMemory or 0)) for process in found]


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
