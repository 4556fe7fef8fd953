"""Everything above the engines dies at once, and knowledge is missing afterwards: `python -m tests.lab kill9-both`.

The control plane and every agent die by SIGKILL. The next control plane finds its catalog directory
empty, half-written, invalid or gone; or it has lost its own state. In whatever order they come back,
no engine is ended for what somebody does not know. At the end the catalog really removes a model,
and that does end its engines: silence was not the reason that nothing happened.
"""

import pathlib
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping

from tests.lab.command import Outcome
from tests.support.fleet_of_eight import EACH, NODES, Eight, options, serving
from tests.support.story import must

SPOILED = (*NODES, "control")


def _empty(catalog: pathlib.Path) -> None:
    for path in catalog.glob("*.yaml"):
        path.unlink()


def _half(catalog: pathlib.Path) -> None:
    """The end of every document is missing, as a writer leaves it that was interrupted."""
    for path in catalog.glob("*.yaml"):
        path.write_text(path.read_text()[: path.stat().st_size // 2])


def _half_the_files(catalog: pathlib.Path) -> None:
    (catalog / "beta.yaml").unlink()


def _invalid(catalog: pathlib.Path) -> None:
    for path in catalog.glob("*.yaml"):
        path.write_text(path.read_text() + "no_such_field: 1\n")


def _gone(catalog: pathlib.Path) -> None:
    shutil.rmtree(catalog)


def _good(_: pathlib.Path) -> None:
    """As it was."""


CATALOGS: Mapping[str, Callable[[pathlib.Path], None]] = {
    "empty": _empty, "half": _half, "half_the_files": _half_the_files, "invalid": _invalid, "gone": _gone,
    "state_lost": _good,
}  # fmt: skip


def run(argv: list[str]) -> Outcome:
    """`--cycles` rounds over every kind of missing knowledge; `--mutant adopts-nothing` must turn it red."""
    asked = options(argv, __doc__, 2)
    chance = random.Random(asked.seed)
    took: dict[str, int] = dict.fromkeys((*CATALOGS, "removed_on_purpose"), 0)
    try:
        with serving(asked.mutant, SPOILED) as fleet, fleet.clients() as clients:
            before = fleet.pids()
            for _ in range(asked.cycles):
                for kind in CATALOGS:
                    _strike(fleet, kind, chance, took)
                    fleet.whole(before)
                    must(not clients.failures, f"after {kind} requests failed: {clients.failures[:3]}")
            figures = {"requests": clients.done, "failed": len(clients.failures), "engines": len(before)}
            _remove_on_purpose(fleet, took)
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


def _strike(fleet: Eight, kind: str, chance: random.Random, took: dict[str, int]) -> None:
    """Everybody dies; knowledge is spoiled; everybody comes back, in some order; then knowledge returns."""
    catalog, kept = fleet.repository / "catalog", fleet.directory / "kept"
    shutil.copytree(catalog, kept)
    for name in ("control", *NODES):
        fleet.kill(name)
    CATALOGS[kind](catalog)
    if kind == "state_lost":
        shutil.rmtree(fleet.directory / "control")
    names = ["control", *NODES]
    chance.shuffle(names)
    for name in names:
        following = (
            ("--catalog", str(catalog), "--watch", "files", "--sync", "auto") if name == "control" else ()
        )
        fleet.begin(name, *following)
    fleet.until(lambda: list(fleet.standing().values()).count("Ready") == len(NODES), "every node is back")
    time.sleep(chance.uniform(1.0, 2.5))  # the settling of a followed catalog, and the roster's grace
    if kind == "state_lost":
        fleet.until(lambda: fleet.status()["revision"] == 1, "the catalog is taken from its files")
    else:
        fleet.until(lambda: _held(fleet), f"a catalog that is {kind} does not stand")
    took[kind] += 1
    shutil.rmtree(catalog, ignore_errors=True)
    kept.rename(catalog)
    fleet.until(fleet.settled, "nothing is outstanding")


def _held(fleet: Eight) -> bool:
    """Whether the followed catalog was judged, and does not stand."""
    followed = fleet.status()["followed"]
    return bool(followed["hold"] or followed["blind"])


def _remove_on_purpose(fleet: Eight, took: dict[str, int]) -> None:
    """A person removes a model: its engines end, the others do not."""
    fleet.remove("beta")
    fleet.commit("without beta")
    done = fleet.cli("apply", "catalog", "--yes", "--allow-mass-stop", str(EACH))
    must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stdout}{done.stderr}")
    fleet.until(lambda: not fleet.engines("beta"), "the engines of beta end")
    took["removed_on_purpose"] = len(fleet.engines("alpha"))
