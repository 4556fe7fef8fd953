"""Files that are worth keeping and not worth stopping for: a full disk is said, and tried again. Used by `serve`.

Nobody's connection and no decision waits for them: until they are kept, a restart knows a little less.
"""

import logging
from collections.abc import Callable

from llmgw.control.journal import Journal

log = logging.getLogger(__name__)


class Keeping:
    """What could not be written yet, by its name for people. One alarm for each reason, not for each try."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._owed: dict[str, tuple[Callable[[], None], str]] = {}

    def keep(self, what: str, write: Callable[[], None]) -> None:
        """Run `write` now; where the disk refuses, run it again at each `again`."""
        try:
            write()
        except OSError as error:
            self._failed(what, write, f"cannot keep {what}: {error.strerror}: {error.filename}")
            return
        if self._owed.pop(what, None) is not None:
            self._journal.note("alarm", "control plane", f"kept {what} again")
            log.warning("kept %s again", what)

    def again(self) -> None:
        """Try everything that is still owed."""
        for what, (write, _) in list(self._owed.items()):
            self.keep(what, write)

    def _failed(self, what: str, write: Callable[[], None], said: str) -> None:
        _, before = self._owed.get(what, (write, ""))
        self._owed[what] = (write, said)
        if said != before:
            self._journal.note("alarm", "control plane", said)
            log.error("%s", said)
