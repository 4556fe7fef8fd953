"""One line a request, without a word of its content. Written in batches: a write costs more than a request.

Noted by `gateway.exchange` and `gateway.front`; flushed by the sweep in `gateway.serve`.
"""

import contextlib
from collections.abc import Callable

BATCH = 512
"""Lines after which a batch is written without waiting for the sweep."""


class AccessLog:
    """`write` takes text of whole lines."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lines: list[str] = []

    def note(
        self,
        request_id: bytes,
        model: str,
        path: str,
        status: int,
        *,
        took: float = 0.0,
        sent: int = 0,
        attempts: int = 0,
        replica: str = "-",
        end: str = "clean",
    ) -> None:
        """A request is over. `took` in seconds, `sent` in bytes of body; `path` and `model` are ours, not said."""
        self._lines.append(
            f"{request_id.decode()} {status} {path} model={model} replica={replica} attempts={attempts} "
            f"ms={took * 1000:.1f} bytes={sent} end={end}\n"
        )
        if len(self._lines) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        if self._lines:
            lines, self._lines = self._lines, []
            with contextlib.suppress(OSError):  # whoever read the log has gone: requests go on without it
                self._write("".join(lines))
