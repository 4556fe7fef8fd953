"""`llmgw apply` on a real terminal, with a person at it: `python -m tests.lab terminal`.

A control plane on loopback whose nodes obey when they are let. The person says yes, makes the window narrower,
presses Ctrl-C and attaches again. What is on the screen at the end is complete, no line is broken by the resize,
and the apply went on all the while. `--mutant NAME` plants a bug in what runs on the terminal, and the lab must end red.
"""

import argparse
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Sequence

from tests.lab.command import Outcome
from tests.support.loopback import Loopback
from tests.support.processes import LLMGW
from tests.support.terminal import Terminal
from tests.support.waiting import wait_for

MUTANTS = {
    "detach-undoes": (
        "from llmgw.cli.doing import apply as a\n"
        "right = a._follow\n"
        "def wrong(client, followed, limit):\n"
        "    code = right(client, followed, limit)\n"
        "    if code == 130:\n"
        "        client.post('/v1/apply', {'files': {}, 'allowed': [('empty', ''), ('mass_stop', '12')], 'who': 'x'})\n"
        "    return code\n"
        "a._follow = wrong\n"
    ),
    "says-nothing": "from llmgw.cli import live\nlive.Plain.say = lambda self, line: None\n"
    "from llmgw.cli import following\nfollowing.region = lambda stream: __import__('contextlib').nullcontext(Quiet())\n",
    "attach-forgets": "from llmgw.cli.doing import apply as a\na.attach = lambda number, limit, server: 0\n",
}
"""Bug → what is run before the command."""
QUIET = "class Quiet:\n    def say(self, line): pass\n    def draw(self, lines): pass\n"
MODELS = 12
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def run(argv: Sequence[str]) -> Outcome:
    """Both halves: one that is watched to its end, one that is left and attached to again."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab terminal", description=__doc__)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    options = parser.parse_args(argv)
    took: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as name:
        directory = pathlib.Path(name)
        with Loopback(directory, {f"node-{i}": 8 for i in range(4)}) as fleet:
            try:
                _watched(fleet, took, options.mutant)
                _left_and_attached(fleet, took, options.mutant)
                failed = ""
            except AssertionError as error:
                failed = str(error)[:600]
    return Outcome(not failed, took, said=failed)


def _watched(fleet: Loopback, took: dict[str, object], mutant: str | None) -> None:
    """A yes at the prompt; the window gets narrower and wider on the way; all of it is told by the end."""
    catalog = fleet.write(_documents(MODELS))
    with _terminal(fleet, mutant, "apply", str(catalog)) as terminal:
        wait_for(lambda: "[yes/no]" in terminal.text, "the question", within=30.0)
        _must("Apply p-" in terminal.text and "lab?" in terminal.text, "the prompt names plan and cluster")
        terminal.type("yes\r")
        for columns in (60, 140, 80):
            terminal.resize(30, columns)
        code = terminal.wait(60.0)
        text = plain(terminal.text)
        _must(code == 0, f"it ends with {code}: {text[-400:]}")
        for number in range(MODELS):
            _must(
                re.search(rf"^.*model-{number:02}/\w{{4}}.*ready", text, re.MULTILINE | re.IGNORECASE),
                f"model-{number:02} is told ready: {text[-1500:]}",
            )
        took["models_told_ready"] = MODELS
        took["resized"] = 3
        took["redrawn"] = terminal.text.count("\x1b[")


def _left_and_attached(fleet: Loopback, took: dict[str, object], mutant: str | None) -> None:
    """Ctrl-C stops following, and only that; `--attach` sees it to its end."""
    before = fleet.client.get("/v1/status")["revision"]
    fleet.hold()
    catalog = fleet.write(_documents(MODELS, replicas=2))
    with _terminal(fleet, mutant, "apply", str(catalog)) as terminal:
        wait_for(lambda: "[yes/no]" in terminal.text, "the question", within=30.0)
        terminal.type("yes\r")
        wait_for(lambda: "stands" in terminal.text, "it is handed over", within=30.0)
        wait_for(
            lambda: "model-" in terminal.text.partition("stands")[2], "something is under way", within=30.0
        )
        terminal.type("\x03")
        code = terminal.wait(20.0)
        text = plain(terminal.text)
    _must(code == 130, f"Ctrl-C ends with {code}: {text[-300:]}")
    _must("Detached; the work goes on" in text and "--attach" in text, f"it says so: {text[-300:]}")
    status = fleet.client.get("/v1/status")
    _must(status["revision"] == before + 1, "one revision, and none that takes it back")
    took["outstanding_when_left"] = len(status["outstanding"])
    with _terminal(fleet, mutant, "apply", "--attach", str(before + 1)) as terminal:
        wait_for(lambda: len(plain(terminal.text)) > 0, "it is attached", within=30.0)
        fleet.let()
        code = terminal.wait(60.0)
        text = plain(terminal.text)
    _must(code == 0, f"attached, it ends with {code}: {text[-400:]}")
    _must("done" in text, f"and says that it is done: {text[-400:]}")
    status = fleet.client.get("/v1/status")
    _must(not status["outstanding"], f"the apply went on: {status['outstanding'][:3]}")
    ready = sum(each["ready"] for each in status["models"].values())
    _must(ready == 2 * MODELS, f"{ready} replicas serve")
    took["attached_to_the_end"] = ready


def _terminal(fleet: Loopback, mutant: str | None, *words: str) -> Terminal:
    told = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "COLUMNS", "LINES")}
    told |= {"LLMGW_SERVER": f"127.0.0.1:{fleet.port}", "TERM": "xterm-256color"}
    command = [str(LLMGW), *words]
    if mutant:
        command = [
            sys.executable,
            "-c",
            f"{QUIET}{MUTANTS[mutant]}from llmgw.cli.main import main\nmain()",
            *words,
        ]
        told["PYTHONPATH"] = str(pathlib.Path(__file__).parents[2])
    return Terminal(command, told, fleet.directory, columns=110, rows=40)


def plain(text: str) -> str:
    """What was written, without what moves the cursor."""
    return _CONTROL.sub("", text)


def _documents(models: int, replicas: int = 1) -> dict[str, str]:
    profile = "kind: profile\nname: one\nengine: llamacpp\ngpus_per_node: 1\nmax_model_len: 4096\n"
    model = "kind: model\nname: {name}\nsource: file:///weights/{name}.gguf\nprofiles: [one]\nscaling: {{min: {n}, max: {n}}}\n"
    names = [f"model-{number:02}" for number in range(models)]
    return {"one.yaml": profile, **{f"{name}.yaml": model.format(name=name, n=replicas) for name in names}}


def _must(held: object, said: str) -> None:
    assert held, said
