"""What a lab is and how it ends: one JSON line, and an exit code that a script can trust.

A lab is a module `tests/lab/NAME.py` with `run(argv) -> Outcome`. It says how often its faults really
took effect: a fault that never did is a failed run, not a green one.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

PASSED, FAILED, CANNOT_RUN = 0, 1, 77


class CannotRun(Exception):
    """This machine lacks what the lab needs; the message says what."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a lab ended. `took_effect` counts each fault that was meant to happen; `figures` were measured."""

    passed: bool
    took_effect: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    said: str = ""

    @property
    def effective(self) -> bool:
        """Every fault took effect at least once."""
        return all(self.took_effect.values())


def names() -> list[str]:
    """The labs there are, as they are written on the command line."""
    here = pathlib.Path(__file__).parent
    support = {"__init__", "__main__", "command"}
    return sorted(path.stem.replace("_", "-") for path in here.glob("*.py") if path.stem not in support)


def main(argv: Sequence[str]) -> int:
    """Run the lab that `argv` names; the exit code."""
    if not argv or argv[0] not in names():
        print(f"usage: python -m tests.lab NAME …\n\nlabs: {', '.join(names())}", file=sys.stderr)
        return 0 if argv in (["--help"], ["-h"]) else 64
    name, *rest = argv
    lab = importlib.import_module(f"tests.lab.{name.replace('-', '_')}")
    try:
        outcome = lab.run(rest)
    except CannotRun as error:
        print(f"{name}: cannot run here: {error}", file=sys.stderr)
        _print(name, None, Outcome(False, said=str(error)))
        return CANNOT_RUN
    idle = [fault for fault, count in outcome.took_effect.items() if not count]
    if idle:
        print(f"{name}: these never took effect: {', '.join(idle)}", file=sys.stderr)
    passed = outcome.passed and outcome.effective
    _print(name, passed, outcome)
    return PASSED if passed else FAILED


def _print(name: str, passed: bool | None, outcome: Outcome) -> None:
    line = {
        "lab": name,
        "pass": passed,
        "took_effect": dict(outcome.took_effect),
        "figures": dict(outcome.figures),
    }
    if outcome.said:
        line["said"] = outcome.said
    print(json.dumps(line, ensure_ascii=False), flush=True)
