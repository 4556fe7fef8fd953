"""Every screen from a recorded fleet, by processes on real terminals: `python -m tests.lab screens`.

A control plane whose day stands still answers; each verb runs as a person runs it, on a pseudo-terminal of 80
and of 100 columns, into a pipe, and in an ASCII locale; and of a fleet whose names attack whoever prints them. What
comes out must be the golden file to the letter.
`--write` draws them anew. `--mutant NAME` plants a bug in the processes, and the lab must end red.
"""

import argparse
import contextlib
import difflib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from llmgw.cli.exits import Exit
from tests.lab.command import Outcome
from tests.support import recorded, screens
from tests.support.desk import Desk, desk
from tests.support.processes import LLMGW
from tests.support.terminal import Terminal

MUTANTS = {
    "cuts-names": "import llmgw.kit.text as t\nt.shortened = lambda text, width: text[:4]\n",
    "prints-anything": "import llmgw.kit.text as t\nt.safe = lambda text: text + '\\x1b[0m'\n",
    "adds-wrongly": "import llmgw.kit.sums as s\nright = s.tenths\ns.tenths = lambda a, u: [x + 1 for x in right(a, u)]\n",
}
"""Bug → what is run before llmgw is imported."""
ROOT = pathlib.Path(__file__).parents[2]


def run(argv: Sequence[str]) -> Outcome:
    """Draw, and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab screens")
    parser.add_argument("--write", action="store_true", help="draw the golden files anew")
    parser.add_argument("--only", nargs="*", choices=list(screens.SCREENS), help="these screens")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    options = parser.parse_args(argv)
    wanted = [each for each in screens.every() if not options.only or each[0] in options.only]
    if options.write:
        recorded.write()
    with _desks() as desks:
        where = {mode: desks[mode == "hostile"].address for mode in screens.MODES}
        if options.write:
            _write(wanted, where)
        with ThreadPoolExecutor(2) as pool:
            seen = list(
                pool.map(lambda each: _by_process(*each, where[each[1]], options.mutant), wanted),
            )
        asked = sum(len(each.asked) for each in desks)
    differ = []
    counted: Counter[str] = Counter()
    for (screen, mode), text in zip(wanted, seen, strict=True):
        counted[f"drawn: {mode}"] += 1
        kept = screens.golden(screen, mode).read_text()
        if text != kept:
            differ.append(f"{screen} ({mode})")
            if len(differ) <= 3:
                print(
                    "\n".join(
                        difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "drawn", n=1)
                    ),
                    file=sys.stderr,
                )
    took = {**counted, "questions to the control plane": asked}
    figures = {"screens": len(wanted), "differ": len(differ)}
    return Outcome(not differ, took, figures, ", ".join(differ[:10]))


@contextlib.contextmanager
def _desks() -> Iterator[tuple[Desk, Desk]]:
    """The recorded fleet, and the one whose names attack, answering."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        attacked = desk(pathlib.Path(other), recorded.hostile(), who="".join(recorded.HOSTILE))
        with desk(pathlib.Path(one)).open() as standing, attacked.open():
            yield standing, attacked


def _write(wanted: Sequence[tuple[str, str]], where: Mapping[str, str]) -> None:
    for screen, mode in wanted:
        path = screens.golden(screen, mode)
        path.parent.mkdir(parents=True, exist_ok=True)
        found = screens.drawn(screen, mode, where[mode])
        assert found.code != Exit.BUG, f"{screen} ({mode}): {found.err}"
        path.write_text(found.text)


def _by_process(screen: str, mode: str, server: str, mutant: str | None) -> str:
    """The screen as a process of its own prints it; stderr is no terminal here, so that the two stay apart."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LC_ALL", "LANG")}
    told = kept | screens.environment(mode, server) | {"PYTHONUTF8": "0"}
    words = screens.words(screen, mode)
    command = [str(LLMGW), *words]
    if mutant:
        code = f"{MUTANTS[mutant]}from llmgw.cli.main import main\nmain()"
        command = [sys.executable, "-c", code, *words]
        told["PYTHONPATH"] = str(ROOT)
    if screens.MODES[mode] is None:
        done = subprocess.run(
            command, cwd=recorded.GOLDEN, env=told, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return screens.Drawn(done.returncode, done.stdout.decode(), done.stderr.decode()).text
    del told["COLUMNS"], told["LINES"]  # the terminal itself must tell
    with Terminal(command, told, recorded.GOLDEN, columns=screens.MODES[mode] or 80, apart=True) as terminal:
        code = terminal.wait()
        return screens.Drawn(code, terminal.text.replace("\r\n", "\n"), terminal.errors).text
