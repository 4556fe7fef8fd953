"""h2's settings of one connection in a tenth of the memory: a control plane holds a thousand connections.

h2 keeps the values that a peer has not acknowledged yet in one deque a setting, of 760 bytes each, mostly for one
number. `transport.connection` gives these to h2 in their place; what they mean is h2's own business.
"""

from collections.abc import Mapping

import h2.settings

Code = h2.settings.SettingCodes | int


class Settings(h2.settings.Settings):
    """What one end of a connection announced."""

    def __init__(self, *, client: bool, initial_values: Mapping[h2.settings.SettingCodes, int]) -> None:
        super().__init__(client=client, initial_values=dict(initial_values))
        small = {code: _Values(values) for code, values in self._settings.items()}
        self._settings = small  # type: ignore[assignment] # all that h2 does with it

    def __setitem__(self, key: Code, value: int) -> None:
        known = key in self._settings
        super().__setitem__(key, value)
        if not known:
            self._settings[key] = _Values(self._settings[key])  # type: ignore[assignment]


class _Values(list[int]):
    """The value that counts, then those that wait for the peer's word."""

    __slots__ = ()

    def popleft(self) -> int:
        """Take the first."""
        return self.pop(0)
