"""In which seed a planted bug shows first: `python -m tests.lab sim --mutants all` tells, `test_sim` looks there.

A changed draw moves them; then what the lab prints is written here again.
"""

FIRST: dict[str, int] = {}
"""Planted bug → seed; 0 where it is not named."""
