"""What one rule says of every replica, asked again only where something changed.

Two steps of `reconcile` keep one each on the board: the stops of what failed, the starts of what comes up.
"""

from collections.abc import Callable, Iterable

from llmgw.planning.actions import Action


class Answers:
    """What one rule answered for each replica; only answers that say something are kept."""

    def __init__(self) -> None:
        self._said: dict[str, list[Action]] = {}

    def renew(self, asked: Iterable[str], rule: Callable[[str], list[Action]]) -> list[Action]:
        """Every answer in the order of ids, after asking again for `asked`."""
        for name in asked:
            if answer := rule(name):
                self._said[name] = answer
            else:
                self._said.pop(name, None)
        return [action for name in sorted(self._said) for action in self._said[name]]
