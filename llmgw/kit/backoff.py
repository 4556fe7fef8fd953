"""Exponential back-off as arithmetic; who waits and how is the caller's business."""

import dataclasses

from llmgw.kit.chance import Chance, jitter


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """`base · factorⁿ`, at most `cap`, ± `share`. Seconds."""

    base: float = 5.0
    factor: float = 2.0
    cap: float = 300.0
    share: float = 0.25

    def delay(self, failures: int, chance: Chance) -> float:
        """Seconds to wait after the `failures`-th failure in a row (the first is 1)."""
        steps = min(max(failures - 1, 0), 32)
        return jitter(chance, min(self.cap, self.base * self.factor**steps), self.share)
