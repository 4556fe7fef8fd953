"""Chance as an argument: the core draws only through these functions, so a seed replays everything."""

import random

Chance = random.Random

_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def suffix(chance: Chance, length: int = 4) -> str:
    """A short id that needs no memory to be unique enough; callers check for collisions."""
    return "".join(chance.choice(_LETTERS) for _ in range(length))


def jitter(chance: Chance, value: float, share: float) -> float:
    """`value` ± `share` of it, uniformly."""
    return value * (1 + chance.uniform(-share, share))


def seeded(seed: int | str) -> Chance:
    """A stream of chance that replays."""
    return random.Random(seed)  # noqa: S311 - jitter and suffixes, no secrets


def unseeded() -> Chance:
    """Chance for a real process."""
    return random.Random()  # noqa: S311 - jitter and suffixes, no secrets
