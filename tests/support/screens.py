"""Every screen as people get it: what is run, how wide, and the golden file that it must be to the letter.

    python -m tests.lab screens --write      draw them anew, after a look at the difference

`drawn` runs a verb in this process, with a terminal that is one as far as it can tell; the lab draws the same
ones in processes of their own, on a real pseudo-terminal. Clocks that are not the recorded fleet's are no part
of a screen: lines that would tell them are left out.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

from llmgw.cli import main, output
from tests.support.recorded import GOLDEN, HOSTILE

MODES: Mapping[str, int | None] = {"pipe": None, "80": 80, "100": 100, "ascii": None, "hostile": 100}
"""Mode → columns of its terminal. `hostile` is of the fleet whose names attack, `recorded.hostile`."""

SCREENS: Mapping[str, Sequence[str]] = {
    "plan": ("plan", "next"),
    "plan-summary": ("plan", "next", "--summary"),
    "plan-explain": ("plan", "next", "--explain", "--only", "qwen*", "--only", "deepseek*"),
    "plan-what-if": ("plan", "next", "--summary", "--without-node", "gpu-a1", "--with-node", "node.yaml"),
    "plan-without": ("plan", "standing", "--without-node", "gpu-a1"),
    "plan-markdown": ("plan", "next", "-o", "markdown"),
    "plan-nothing": ("plan", "standing"),
    "apply": ("apply", "next"),
    "apply-stale": ("apply", "next", "--expect", "p-000000"),
    "rollback": ("rollback",),
    "drain": ("node", "drain", "gpu-a1", "--reason", "new cards"),
    "confirm-lost": ("node", "confirm-lost", "gpu-b1"),
    "forget": ("node", "forget", "gpu-b1"),
    "resume": ("resume", "phi-4"),
    "status": ("status",),
    "status-wide": ("status", "-o", "wide"),
    "replicas": ("replicas",),
    "replicas-wide": ("replicas", "-o", "wide"),
    "nodes": ("nodes",),
    "nodes-wide": ("nodes", "-o", "wide"),
    "models": ("models",),
    "models-wide": ("models", "-o", "wide"),
    "events": ("events",),
    "gc": ("gc",),
    "history": ("history",),
    "history-json": ("history", "-o", "json"),
    "history-show": ("history", "show", "7"),
    "show": ("show", "7"),
    "doctor": ("doctor",),
    "version": ("version",),
    "why-model": ("why", "deepseek-v3"),
    "why-paused": ("why", "phi-4"),
    "why-replica": ("why", "llama-70b/egzd"),
    "why-node": ("why", "gpu-b1"),
    "engine-check": ("engine-check", "gpu-a1"),
    "tokens": ("token", "list"),
    "fit": ("fit", "llama", "--profile", "one-h100", "--catalog", "next"),
    "validate": ("validate", "next"),
    "validate-broken": ("validate", "broken"),
    "validate-many": ("validate", "many", "-o", "concise"),
}
"""Screen → command line, run in the golden directory."""

ATTACKED: Mapping[str, Sequence[str]] = {
    "plan-what-if": ("plan", "next", "--summary", "--without-node", "[bold]", "--with-node", "node.yaml"),
    "plan-without": ("plan", "standing", "--without-node", "@all"),
    "drain": ("node", "drain", "@all", "--reason", "".join(HOSTILE)),
    "confirm-lost": ("node", "confirm-lost", "a|b"),
    "forget": ("node", "forget", "a|b"),
    "engine-check": ("engine-check", "@all"),
    "why-node": ("why", "a|b"),
}
"""Those that name a node, where nodes have the names that attack."""

ALONE = ("validate", "fit")
"""Verbs that ask no control plane: nothing of the fleet is on their screens."""

_TOLD_BY_CLOCKS = (
    (re.compile(r"catalog [0-9a-f]{7} \(HEAD[^\n]*?\)(?: \+ \d+ uncommitted: [^\n]*?)?(?=   applied|$)", re.MULTILINE), "catalog COMMIT"),
    (re.compile(r"catalog [0-9a-f]{7} &#40;HEAD.*? (.) applied"), r"catalog COMMIT \1 applied"),
    (re.compile(r'"head": "[0-9a-f]*(?:-dirty)?"'), '"head": "COMMIT"'),
    (re.compile(r"^      by        .*\n", re.MULTILINE), ""),
    (re.compile(r"at 127\.0\.0\.1:\d+, release (\S+), answers in \S+"), r"at SERVER, release \1, answers in TIME"),
    (re.compile(r"the control plane's is \S+ (?:behind|ahead of) this"), "the control plane's is TIME off this"),
)  # fmt: skip
"""What depends on the commit that this repository is at."""


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """What came of it."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """As it is kept."""
        whole = f"{self.out}--- stderr, exit {self.code}\n{self.err}"
        for pattern, instead in _TOLD_BY_CLOCKS:
            whole = pattern.sub(instead, whole)
        return whole


class _Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def words(screen: str, mode: str) -> Sequence[str]:
    """The command line of a screen."""
    return ATTACKED.get(screen, SCREENS[screen]) if mode == "hostile" else SCREENS[screen]


def environment(mode: str, server: str) -> dict[str, str]:
    """What a process of this mode is told."""
    told = {
        "LLMGW_SERVER": server,
        "NO_COLOR": "1",
        "CI": "1",
        "LOGNAME": "ilker",
        "SHELL": "/bin/bash",
        "XDG_DATA_HOME": "/nonexistent",
    }
    if mode == "ascii":
        told |= {"LC_ALL": "C"}
    if (width := MODES[mode]) is not None:
        told |= {"COLUMNS": str(width), "LINES": "40"}
    return told


def drawn(screen: str, mode: str, server: str, *more: str, told: Mapping[str, str] | None = None) -> Drawn:
    """The screen, drawn in this process. `more` are options, `told` is over the environment of the mode."""
    kind = io.TextIOWrapper if MODES[mode] is None else _Terminal
    streams = [kind(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    whole = environment(mode, server) | dict(told or {})
    cleared = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LC_ALL", "LANG")}
    with (
        contextlib.chdir(GOLDEN),
        mock.patch.dict(os.environ, cleared | whole, clear=True),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        mock.patch("sys.stdin", io.StringIO()),
    ):
        output.plain_forms(os.environ)
        code = main.run([*words(screen, mode), *more])
    texts = []
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode())
    return Drawn(code, *texts)


def golden(screen: str, mode: str) -> pathlib.Path:
    """Where it is kept."""
    return GOLDEN / "screens" / mode / f"{screen}.txt"


def every() -> Iterator[tuple[str, str]]:
    """(screen, mode) of all of them."""
    for screen in SCREENS:
        for mode in MODES:
            if mode != "hostile" or SCREENS[screen][0] not in ALONE:
                yield screen, mode
