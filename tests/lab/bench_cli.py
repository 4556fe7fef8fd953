"""What people wait for at the command line: `python -m tests.lab bench-cli`.

`--help` of the group and of `plan`, and completion, as processes of their own (median of ten). Then a control
plane on loopback with nodes that obey and a catalog of a thousand models that serve: `llmgw plan` of a change to
ten of them, of nothing, and with every model new. Wall time of the whole process, median of a few.
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
from tests.support.processes import LLMGW

HELP, PLAN = 0.120, 1.5
"""Seconds that a `--help` and a plan may take."""
TIMES = 10
CARDS = 100
"""Of a node: few nodes register soon, and a node has ports for a hundred shards."""


def run(argv: Sequence[str]) -> Outcome:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab bench-cli", description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="plans of each kind")
    options = parser.parse_args(argv)
    figures = {
        "help_ms": _median([str(LLMGW), "--help"], TIMES),
        "plan_help_ms": _median([str(LLMGW), "plan", "--help"], TIMES),
        "completion_ms": _median(
            [str(LLMGW)], TIMES, _LLMGW_COMPLETE="bash_complete", COMP_WORDS="llmgw pl", COMP_CWORD="1"
        ),
    }
    nodes = {f"node-{number:02}": CARDS for number in range(-(-options.models // CARDS) + 2)}
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-lab-") as name,
        Loopback(pathlib.Path(name), nodes) as fleet,
    ):
        catalog = fleet.write(documents(options.models))
        plan = [str(LLMGW), "plan", str(catalog), "-o", "text", "--server", f"127.0.0.1:{fleet.port}"]
        new = _median(plan, options.rounds)
        applied = fleet.cli("apply", str(catalog), "--yes", "--timeout", "120s")
        if applied.code:
            return Outcome(False, said=f"apply: {applied.err[-300:]}")
        served = sum(each["ready"] for each in fleet.client.get("/v1/status")["models"].values())
        fleet.write(documents(options.models, changed=10))
        rows = json.loads(fleet.cli("plan", str(catalog), "-o", "json").out)["rows"]
        figures |= {
            "plan_new_s": round(new / 1000, 3),
            "plan_ten_s": round(_median(plan, options.rounds) / 1000, 3),
        }
        fleet.write(documents(options.models))
        figures["plan_nothing_s"] = round(_median(plan, options.rounds) / 1000, 3)
    took = {"models that serve": served if served == options.models else 0, "rows of ten": len(rows) == 10}
    quick = all(figures[name] <= HELP * 1000 for name in ("help_ms", "plan_help_ms", "completion_ms"))
    soon = all(figures[name] <= PLAN for name in ("plan_new_s", "plan_ten_s", "plan_nothing_s"))
    return Outcome(quick and soon, took, figures)


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


def _median(command: Sequence[str], times: int, **told: str) -> float:
    """Milliseconds of wall time."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, **told}, capture_output=True, check=False)
        spent.append(1000 * (time.perf_counter() - began))
        if done.returncode:
            print(done.stderr.decode(), file=sys.stderr)
    return round(statistics.median(spent), 1)
