"""Each guard at its limit and one below it: `python -m tests.lab guards`.

A real control plane on loopback that follows a git repository, nodes that obey, the CLI's own commands. Each
guard must fire where it has to and nowhere before, say so on `plan`, stop `apply` with exit 4 and what is
followed, with nothing reaching a node, and let pass exactly what its override names. `--mutant NAME`
plants a bug, which must turn the lab red.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from llmgw.cli.doing import apply
from llmgw.control import adoption, holding
from llmgw.control.serve import Following
from llmgw.control.settling import Pace
from llmgw.planning import guards
from llmgw.planning.guards import Limits
from tests.control.repository import Repository
from tests.lab.command import Outcome
from tests.lab.plan_race import must
from tests.support.loopback import Loopback, planted
from tests.support.waiting import wait_for

LIMITS = Limits(0.3, 3, {"mass_stop": "llmgw.toml:14", "mass_stop_least": "llmgw.toml:15"})
PACE = Pace(settle=0.02, rescan=0.05)
BLOCKED = 4
PROFILE = "kind: profile\nname: one\nengine: llamacpp\ngpus_per_node: 1\nmax_model_len: {length}\n"
MODEL = "kind: model\nname: {name}\nsource: http://127.0.0.1:1/{name}.gguf\nsha256: {sha}\nprofiles: [one]\n"

Files = Mapping[str, str]


def catalog(*models: str, length: int = 512, **more: str) -> Files:
    """A catalog of these models; `more` are lines of YAML, by model."""
    written = {f"{name}.yaml": MODEL.format(name=name, sha="cd" * 32) + more.get(name, "") for name in models}
    return {**written, "one.yaml": PROFILE.format(length=length)}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """From `below[0]` to `below[1]` nothing fires; from `at[0]` to `at[1]` the guard does, and says `said`.

    `way` is what lets it pass; each of `wrong` must not.
    """

    name: str
    cards: int
    below: tuple[Files, Files]
    at: tuple[Files, Files]
    said: str
    way: tuple[str, ...]
    wrong: tuple[tuple[str, ...], ...]


TEN = tuple(f"m{number}" for number in range(10))
PROTECTED = catalog("a", "b", a="protect: true\n")
CASES: Sequence[Case] = (
    Case(
        "mass_stop", 12, (catalog(*TEN), catalog(*TEN[:7])), (catalog(*TEN), catalog(*TEN[:6])),
        "it would stop 4 of 10 ready replicas (40 %), the limit is 30 % (llmgw.toml:14), from 3 on (llmgw.toml:15)",
        ("--allow-mass-stop", "4"),
        (("--allow-mass-stop", "3"), ("--allow-mass-stop", "5"), ("--allow-mass-stop", "10"), ("--allow-empty",)),
    ),
    Case(
        "least", 12, (catalog("a", "b", "c"), catalog("a")), (catalog("a", "b", "c", "d"), catalog("a")),
        "it would stop 3 of 4 ready replicas (75 %)", ("--allow-mass-stop", "3"), (("--allow-mass-stop", "2"),),
    ),
    Case(
        "empty", 4, (catalog("a", "b"), catalog("a")), (catalog("a", "b"), catalog()),
        "it would remove 2 models and leave nothing to ask", ("--allow-empty",),
        (("--allow-mass-stop", "2"), ("--allow-empty", "--allow-outage", "a"), ("--allow-removal", "a")),
    ),
    Case(
        "outage", 2, (catalog("a"), catalog("a", length=1024)),
        (catalog("a", "b", length=1024), catalog("a", "b", length=2048)),
        "a has 1 ready now and would have 0 on the way", ("--allow-outage", "a", "--allow-outage", "b"),
        (("--allow-outage", "a"), ("--allow-outage", "b"), ("--allow-outage", "a", "--allow-outage", "c")),
    ),
    Case(
        "alias", 2, (catalog("a", "b", a="aliases: [chat]\n"), catalog("a", "b", b="aliases: [chat]\n")),
        (catalog("a", "b", a="aliases: [chat]\n"), catalog("b", "new", new="aliases: [chat]\n")),
        "chat has 1 ready now and would have 0 on the way; it moves from a to new", ("--allow-outage", "chat"),
        (("--allow-outage", "new"), ("--allow-outage", "a")),
    ),
    Case(
        "protect", 4, (PROTECTED, catalog("a", a="protect: true\n")), (PROTECTED, catalog("b")),
        "a is protected (", ("--allow-removal", "a"), (("--allow-removal", "b"), ("--allow-outage", "a")),
    ),
    Case(
        "protect_to_zero", 4, (PROTECTED, catalog("a", a="protect: true\n")),
        (PROTECTED, catalog("a", "b", a="scaling: {min: 0, max: 1}\n")),
        "and would be scaled to zero", ("--allow-removal", "a"), (("--allow-empty",),),
    ),
)  # fmt: skip


def _blanket(found: Any, allowed: Any) -> tuple[str, ...]:
    return tuple(each.said for each in found if each.guard not in {guard for guard, _ in allowed})


_RIGHT_HOLD = holding._hold


def _followed_is_not_guarded(found: Any, left: Any, rules: Any, now: Any) -> Any:
    if isinstance(found, holding.Valid):
        found = dataclasses.replace(found, plan=dataclasses.replace(found.plan, guards=()))
    return _RIGHT_HOLD(found, left, rules, now)


_RIGHT_STOP, _RIGHT_OUTAGE = guards._mass_stop, guards._outage


def _one_early(plan: Any, old: Any, new: Any, limits: Any, seen: Any) -> Any:
    return _RIGHT_STOP(plan, old, new, dataclasses.replace(limits, share=limits.share - 0.01), seen)


MUTANTS: Mapping[str, Sequence[tuple[Any, str, Any]]] = {
    "no-guards": ((guards, "fired", lambda *_: ()),),
    "blanket-overrides": ((adoption, "refusal", _blanket), (apply, "refusal", _blanket)),
    "apply-is-not-guarded": ((adoption, "_check_guards", lambda *_: None), (apply, "_check_guards", lambda *_: None)),
    "followed-is-not-guarded": ((holding, "_hold", _followed_is_not_guarded),),
    "one-early": ((guards, "_mass_stop", _one_early),),
    "aliases-are-forgotten": ((guards, "owners", lambda catalog: {name: name for name in catalog.models}),),
    "protection-is-forgotten": ((guards, "_protect", lambda *_: ()),),
}  # fmt: skip
"""Bug → where it is planted."""


class Trial:
    """One case on one control plane."""

    def __init__(self, case: Case, directory: pathlib.Path, took: collections.Counter[str]) -> None:
        self.case, self.took = case, took
        self.repository = Repository(directory / "fleet")
        self.repository.commit({"README.md": "no model yet"})
        following = Following(self.repository.catalog, "commits", "auto", pace=PACE)
        self.lab = Loopback(directory, {"n0": case.cards}, limits=LIMITS, following=following)

    def run(self) -> None:
        with self.lab:
            self.followed(self.case.below[0], "it begins")
            self.below()
            self.followed(self.case.at[0], "up to the limit")
            self.on_plan()
            self.on_watch()
            self.on_apply()

    def followed(self, files: Files, what: str) -> None:
        """Committed, adopted by itself, running."""
        commit = self.commit(files)
        wait_for(lambda: self.status()["commit"] == commit, f"{what}: it is adopted", within=5.0)
        self.lab.quiet()

    def commit(self, files: Files) -> str:
        for path in self.repository.catalog.iterdir():
            path.unlink()
        return self.repository.commit(files)

    def status(self) -> Any:
        return self.lab.client.get("/v1/status")

    def below(self) -> None:
        """One below: `plan` names no guard, and what is followed is adopted."""
        root = self.lab.write(self.case.below[1])
        shown = json.loads(must_say(self.lab.cli("plan", str(root), "-o", "json"), 0))
        assert shown["guards"] == [], f"one below the limit fires: {shown['guards']}"
        self.followed(self.case.below[1], "one below the limit")
        self.took[f"{self.case.name}_below"] += 1

    def on_plan(self) -> None:
        """A plan says it, in text and in JSON, and exits 0: it changes nothing."""
        root = self.lab.write(self.case.at[1])
        shown = json.loads(must_say(self.lab.cli("plan", str(root), "-o", "json"), 0))
        assert self.case.said in "\n".join(each["said"] for each in shown["guards"]), shown["guards"]
        must(self.lab.cli("plan", str(root)), 0, f"blocked: {shown['guards'][0]['said']}")
        self.took[f"{self.case.name}_on_plan"] += 1

    def on_watch(self) -> None:
        """What is followed is held, says why and what to run, and no node hears of it."""
        before, obeyed = self.status()["revision"], self.lab.obeyed
        self.commit(self.case.at[1])
        hold = wait_for(lambda: self.status()["followed"]["hold"], "it is held", within=5.0)
        assert hold["why"] == "guard", hold
        assert self.case.said in "\n".join((hold["said"], *hold["details"])), hold
        assert hold["next"].endswith(shlex.join(self.case.way)), hold
        assert (self.status()["revision"], self.lab.obeyed) == (before, obeyed), "something followed"
        self.took[f"{self.case.name}_on_watch"] += 1

    def on_apply(self) -> None:
        """Without its override, or with another: exit 4, and nothing follows. With it: done, and no more held."""
        root = str(self.lab.write(self.case.at[1]))
        before, obeyed = self.status()["revision"], self.lab.obeyed
        for words in ((), *self.case.wrong):
            must(self.lab.cli("apply", root, "--yes", *words), BLOCKED, "Nothing was changed")
            self.took[f"{self.case.name}_on_apply"] += 1
        assert (self.status()["revision"], self.lab.obeyed) == (before, obeyed), "something followed"
        must(self.lab.cli("apply", root, "--yes", "--wait", "accepted", *self.case.way), 0)
        assert self.status()["revision"] == before + 1, "it is not adopted"
        self.lab.quiet()
        wait_for(lambda: not self.status()["followed"]["hold"], "nothing is held any more", within=5.0)
        rows = self.lab.client.get("/v1/history", last=1)
        assert [word for guard in rows[0]["allowed"] for word in guard if word], "the override is recorded"
        self.took[f"{self.case.name}_passed"] += 1


def must_say(ran: Any, code: int) -> str:
    """What it printed."""
    must(ran, code)
    return str(ran.out)


def play(directory: pathlib.Path, cases: Sequence[Case]) -> tuple[str, Mapping[str, int]]:
    """Every case. Returns what failed, or nothing, and what took effect how often."""
    parts = ("below", "on_plan", "on_watch", "on_apply", "passed")
    took = collections.Counter({f"{case.name}_{part}": 0 for case in cases for part in parts})
    failed: list[str] = []
    for case in cases:
        try:
            Trial(case, directory / case.name, took).run()
        except AssertionError as error:
            failed.append(f"{case.name}: {error}")
    return "\n".join(failed), took


def run(argv: Sequence[str]) -> Outcome:
    """The cases, with a planted bug if one is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab guards", description=__doc__)
    parser.add_argument(
        "--case", choices=[case.name for case in CASES], action="append", help="this one only"
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    options = parser.parse_args(argv)
    cases = [case for case in CASES if not options.case or case.name in options.case]
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as directory, contextlib.ExitStack() as stack:
        for target, name, wrong in MUTANTS.get(options.mutant, ()):
            stack.enter_context(planted(target, name, wrong))
        failed, took = play(pathlib.Path(directory), cases)
    if failed:
        print(failed, file=sys.stderr)
    return Outcome(not failed, took, {"cases": len(cases)}, failed.partition("\n")[0])
