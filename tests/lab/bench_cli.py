"""How long people wait for a plan of a thousand models: `python -m tests.lab bench-cli`.

A control plane on loopback with nodes that obey and a catalog of a thousand models that serve: `llmgw plan` of a
change to ten of them, of nothing, and with every model new. Wall time of the whole process, with its bytecode kept
as an installation has it; median of a few. This machine's pace is printed beside.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tests.lab.command import Outcome
from tests.support.loopback import Loopback
from tests.support.pace import pace
from tests.support.processes import LLMGW

PLAN = 1.5
"""Seconds that a plan may take."""
CARDS = 100
"""Of a node: few nodes register soon, and a node has ports for a hundred shards."""


def run(argv: Sequence[str]) -> Outcome:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab bench-cli", description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="plans of each kind")
    options = parser.parse_args(argv)
    before = pace()
    nodes = {f"node-{number:02}": CARDS for number in range(-(-options.models // CARDS) + 2)}
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-lab-") as name,
        Loopback(pathlib.Path(name), nodes) as fleet,
    ):
        kept = {**os.environ, "PYTHONPYCACHEPREFIX": f"{name}/bytecode"}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        catalog = fleet.write(documents(options.models))
        plan = [str(LLMGW), "plan", str(catalog), "-o", "text", "--server", f"127.0.0.1:{fleet.port}"]
        new = _median(plan, options.rounds, kept)
        applied = fleet.cli("apply", str(catalog), "--yes", "--timeout", "120s")
        if applied.code:
            return Outcome(False, said=f"apply: {applied.err[-300:]}")
        served = sum(each["ready"] for each in fleet.client.get("/v1/status")["models"].values())
        fleet.write(documents(options.models, changed=10))
        rows = json.loads(fleet.cli("plan", str(catalog), "-o", "json").out)["rows"]
        ten = _median(plan, options.rounds, kept)
        fleet.write(documents(options.models))
        nothing = _median(plan, options.rounds, kept)
    slowness = round((before + pace()) / 2, 2)
    figures = {"plan_new_s": new, "plan_ten_s": ten, "plan_nothing_s": nothing}
    took = {"models that serve": served if served == options.models else 0, "rows of ten": len(rows) == 10}
    return Outcome(max(figures.values()) <= PLAN, took, figures | {"pace": slowness})


def documents(models: int, changed: int = 0) -> Mapping[str, str]:
    """The catalog; of `changed` models the profile is another one."""
    profile = "kind: profile\nname: {name}\nengine: llamacpp\ngpus_per_node: 1\nmax_model_len: {length}\n"
    model = "kind: model\nname: {name}\nsource: file:///weights/{name}.gguf\nprofiles: [{profile}]\n"
    names = [f"model-{number:04}" for number in range(models)]
    return {
        "one.yaml": profile.format(name="one", length=4096),
        "two.yaml": profile.format(name="two", length=8192),
        **{
            f"{name}.yaml": model.format(name=name, profile="two" if number < changed else "one")
            for number, name in enumerate(names)
        },
    }


def _median(command: Sequence[str], times: int, environment: Mapping[str, str]) -> float:
    """Seconds of wall time, after one run that is not counted."""
    spent = []
    for _ in range(times + 1):
        began = time.perf_counter()
        done = subprocess.run(command, env=dict(environment), capture_output=True, check=False)
        spent.append(time.perf_counter() - began)
        if done.returncode:
            print(done.stderr.decode(), file=sys.stderr)
    return round(statistics.median(spent[1:]), 3)
