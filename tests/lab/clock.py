"""The wall clock jumps under every process: `python -m tests.lab clock --jumps 100`.

The control plane, the agents and the gateway read a wall clock that jumps by seconds, hours and days,
forwards and back, all at once or one of them alone. Nothing may follow from it: no node is silent, no
engine starts or stops, nothing is ordered, no request fails. That they saw the jump is read from the
time of an event that each of them has a hand in.
"""

import argparse
import datetime
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from tests.lab.command import CannotRun, Outcome
from tests.support.clients import Steady
from tests.support.planted import wrapper
from tests.support.rig import CARDS, Rig
from tests.support.story import must

SHIM = pathlib.Path(__file__).parents[1] / "support" / "clock.c"
JUMPS = (-86400, -3600, -61, -1, 1, 61, 3600, 86400, 40 * 86400)
"""Seconds."""
SEEN_EVERY = 5
WHO = ("control", "a", "gateway")


def run(argv: list[str]) -> Outcome:
    """`--jumps` of them; `--mutant tells-the-time` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jumps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=["tells-the-time"])
    asked = parser.parse_args(argv)
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotRun("a C compiler is needed")
    chance = random.Random(asked.seed)
    took = {"jumps": 0, "together": 0, "alone": 0, "seen_in_events": 0}
    try:
        with tempfile.TemporaryDirectory(prefix="llmgw-clock-") as place:
            directory = pathlib.Path(place)
            shim = directory / "clock.so"
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(SHIM), "-ldl"], check=True
            )
            with Rig(directory, {"alpha": "I am alpha."}) as rig:
                _begin(rig, shim, asked.mutant)
                with Steady(rig.gateway_port, "alpha", clients=1, pace=0.02) as clients:
                    figures = _jump(rig, clients, chance, asked.jumps, took)
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


def _begin(rig: Rig, shim: pathlib.Path, mutant: str | None) -> None:
    """One node that serves the model twice; every process has its own file of an offset."""
    for who in WHO:
        _offset(rig, who, 0)

    def env(who: str) -> tuple[str, ...]:
        return ("env", f"LD_PRELOAD={shim}", f"CLOCK_OFFSET={rig.directory / f'offset-{who}'}")

    rig.control(wrapper=(*env("control"), *wrapper(mutant)))
    rig.agent("a", wrapper=env("a"))
    rig.gateway(wrapper=env("gateway"))
    rig.profile()
    rig.model("alpha", scaling={"min": len(CARDS), "max": len(CARDS)})
    rig.commit("one model")
    rig.until(lambda: list(rig.standing().values()) == ["Ready"], "the node registers")
    must(rig.cli("apply", "catalog", "--yes").returncode == 0, "the catalog is applied")
    rig.until(rig.settled, "the model is ready")


def _jump(
    rig: Rig, clients: Steady, chance: random.Random, jumps: int, took: dict[str, int]
) -> dict[str, object]:
    """Every jump in turn; nothing may follow from any."""
    before, quiet = rig.pids(), rig.last_event()
    offsets = dict.fromkeys(WHO, 0)
    for number in range(jumps):
        by, together = chance.choice(JUMPS), chance.random() < 0.5
        for who in WHO if together else (chance.choice(WHO),):
            offsets[who] = max(-86400, offsets[who] + by)
            _offset(rig, who, offsets[who])
        took["jumps"] += 1
        took["together" if together else "alone"] += 1
        known = clients.done
        rig.until(lambda known=known: clients.done > known + 3, "answers after the jump")  # type: ignore[misc]
        must(rig.settled(), f"jump {number} by {by} s: {rig.status()}")
        must(rig.pids() == before, f"jump {number} by {by} s: the engines changed")
        must(not clients.failures, f"jump {number} by {by} s: requests failed: {clients.failures[:3]}")
        told = [entry for entry in rig.get(f"events?after={quiet}") if entry["about"] != "a"]
        must(not told, f"jump {number} by {by} s: something followed: {told[:3]}")
        if number % SEEN_EVERY == 0:
            took["seen_in_events"] += _seen(rig, offsets["control"])
        quiet = rig.last_event()
    return {"requests": clients.done, "failed": len(clients.failures)}


def _seen(rig: Rig, offset: int) -> bool:
    """Whether an event of now carries the time that the control plane was made to see."""
    cordoned = rig.cli("node", "cordon", "a", "--reason", "what time is it?")
    must(cordoned.returncode == 0, f"cordon: {cordoned.stderr}")
    must(rig.cli("node", "uncordon", "a").returncode == 0, "uncordon")
    entry = rig.get(f"events?after={rig.last_event() - 1}")[-1]
    said = datetime.datetime.fromisoformat(entry["at"]).timestamp()
    real = float(subprocess.run(["date", "+%s.%N"], capture_output=True, text=True, check=True).stdout)
    return abs(said - real - offset) < 5.0 and offset != 0


def _offset(rig: Rig, who: str, seconds: int) -> None:
    path = rig.directory / f"offset-{who}"
    path.with_suffix(".new").write_text(str(seconds))
    path.with_suffix(".new").replace(path)
