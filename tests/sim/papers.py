"""What the control plane keeps on disk of people's marks, as far as `control.hands` asks for it."""

from typing import Protocol

from llmgw.control.marks import Kept


class Keeps(Protocol):
    """A disk that outlives the control plane."""

    marks: Kept


class Papers:
    """Stands in for `control.store.Store`."""

    def __init__(self, disk: Keeps) -> None:
        self._disk = disk

    def marks(self) -> Kept:
        """The marks as they were kept."""
        return self._disk.marks

    def save_marks(self, kept: Kept) -> None:
        """Keep them."""
        self._disk.marks = kept
