"""Plans against a world that moves: `python -m tests.lab plan-race --n 200`.

A real control plane on loopback, nodes that obey, and the CLI's own commands. Between a plan and its apply
somebody else applies, a node goes or comes, the directory changes; a plan is applied twice, and beside
another. What was not shown must be refused with its difference and reach no node; what is adopted
already is no action and exit 0; what is left of a plan may go on. `--mutant NAME` plants a bug, which
must turn the lab red.
"""

import argparse
import collections
import contextlib
import dataclasses
import pathlib
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmgw.cli.client import Client
from llmgw.cli.saved import load, promised
from llmgw.control import expecting
from llmgw.errors import Stale
from llmgw.planning import promise
from llmgw.planning.guards import Limits
from tests.lab.command import Outcome
from tests.support.loopback import Loopback, Ran, planted

CARDS = {"n0": 6, "n1": 4}
MODEL = "kind: model\nname: {name}\nsource: http://127.0.0.1:1/{name}.gguf\nsha256: {sha}\nprofiles: [one]\naliases: [{alias}]\nscaling: {{min: {n}, max: {n}}}\n"
PROFILE = "kind: profile\nname: one\nengine: llamacpp\ngpus_per_node: 1\nmax_model_len: {length}\n"
STALE = 5
TOGETHER = 9
"""Replicas that a drawn catalog has at most: there is always a card to spare."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A catalog, in short: replicas of three models, the context of their profile, an alias."""

    counts: tuple[int, int, int] = (2, 1, 1)
    length: int = 512
    alias: str = "chat"

    def files(self) -> Mapping[str, str]:
        names = ("alpha", "beta", "gamma")
        models = {
            f"{name}.yaml": MODEL.format(name=name, sha="cd" * 32, n=n, alias=f"{name}-{self.alias}")
            for name, n in zip(names, self.counts, strict=True)
        }
        return {**models, "one.yaml": PROFILE.format(length=self.length)}


MUTANTS: Mapping[str, Sequence[tuple[Any, str, Any]]] = {
    "takes-any-plan": ((expecting.Expecting, "check", lambda *_: None),),
    "plans-are-never-used-up": ((expecting.Expecting, "_check_unused", lambda *_: None),),
    "more-is-a-part": ((promise.Difference, "stale", property(lambda _: False)),),
    "words-do-not-matter": ((promise.Line, "key", property(lambda line: (line.symbol, line.model, line.code, "", ""))),),
}  # fmt: skip
"""Bug → where it is planted."""


class Race:
    """One control plane, and what came of each round."""

    def __init__(self, lab: Loopback, chance: random.Random) -> None:
        self.lab, self.chance = lab, chance
        self.took: collections.Counter[str] = collections.Counter()
        self.stands = Wanted()
        self.number = 0

    # --- people -------------------------------------------------------------------------------

    def another(self, *, than: Wanted, up: bool = False) -> Wanted:
        """A catalog that means something else, and still fits; with `up` it has no less of anything."""
        while True:
            counts = tuple(self.chance.randint(1, 3) for _ in range(3))
            if up:
                counts = tuple(n + self.chance.randint(0, 1) for n in than.counts)
            found = Wanted(counts, than.length, than.alias)  # type: ignore[arg-type]
            if not up and self.chance.random() < 0.3:
                found = dataclasses.replace(found, alias=f"a{self.chance.randrange(10**6)}")
            if found != than and sum(counts) <= TOGETHER:
                return found

    def plan(self, wanted: Wanted) -> tuple[str, pathlib.Path]:
        """Plan it and save that; its id, and its file."""
        self.number += 1
        path = self.lab.directory / f"plan-{self.number}.json"
        root = self.lab.write(wanted.files(), "mine")
        ran = self.lab.cli("plan", str(root), "--save", str(path), "-o", "json")
        must(ran, 0)
        digest = ran.out.partition('"digest": "')[2][:64]
        return digest, path

    def apply(self, wanted: Wanted, *words: str, name: str = "theirs") -> Ran:
        """Somebody applies a catalog, whatever its plan is."""
        root = self.lab.write(wanted.files(), name)
        return self.lab.cli("apply", str(root), "--wait", "accepted", *words)

    def settle(self, wanted: Wanted) -> None:
        """This catalog stands, and the fleet is quiet."""
        must(self.apply(wanted, "--yes"), 0)
        self.stands = wanted
        self.lab.quiet()

    def revision(self) -> int:
        return int(self.lab.client.get("/v1/status")["revision"])

    def refused(self, call: Callable[[], Ran], *words: str) -> None:
        """It is stale, says why, and nothing follows from it."""
        before, obeyed = self.revision(), self.lab.obeyed
        ran = call()
        must(ran, STALE, *words, "Nothing was changed")
        self.lab.quiet()
        assert (self.revision(), self.lab.obeyed) == (before, obeyed), "something followed from a refusal"
        self.took["refused"] += 1

    # --- rounds -------------------------------------------------------------------------------

    def nothing_moves(self) -> None:
        """The plan is applied, and then again: the second time is no action."""
        wanted = self.another(than=self.stands)
        digest, path = self.plan(wanted)
        how = self.chance.choice(
            (("--plan", str(path)), (str(self.lab.directory / "mine"), "--expect", digest))
        )
        must(self.lab.cli("apply", *how, "--wait", "accepted"), 0, "stands")
        self.stands = wanted
        self.lab.quiet()
        number, obeyed = self.revision(), self.lab.obeyed
        must(self.lab.cli("apply", *how), 0, "stands already: nothing to apply")
        assert (self.revision(), self.lab.obeyed) == (number, obeyed), "applying it again did something"
        self.took["again_is_nothing"] += 1

    def somebody_else(self) -> None:
        """Another catalog is applied meanwhile: what would be undone is shown, and who did it."""
        mine = self.another(than=self.stands)
        digest, path = self.plan(mine)
        theirs = dataclasses.replace(self.another(than=mine), alias=f"b{self.number}")
        self.settle(theirs)
        if self.chance.random() < 0.5:
            self.refused(lambda: self.lab.cli("apply", "--plan", str(path)), "not in yours", "applied since")
        else:
            root = str(self.lab.directory / "mine")
            self.refused(lambda: self.lab.cli("apply", root, "--expect", digest[:12]), "not in yours")
        self.took["somebody_else"] += 1

    def a_part(self) -> None:
        """A part of it is applied meanwhile: the rest may go on."""
        if sum(self.stands.counts) > 6:
            self.settle(Wanted(alias=f"g{self.number}"))
        mine = self.another(than=self.stands, up=True)
        grown = [i for i, n in enumerate(mine.counts) if n > self.stands.counts[i]]
        _, path = self.plan(mine)
        part = list(mine.counts)
        part[grown[0]] -= 1
        other = dataclasses.replace(mine, counts=tuple(part))
        self.settle(other)
        must(self.lab.cli("apply", "--plan", str(path), "--wait", "accepted"), 0)
        self.stands = mine
        self.lab.quiet()
        self.took["a_part"] += 1

    def a_node_goes(self) -> None:
        """There is no room any more for what was planned."""
        mine = dataclasses.replace(self.stands, counts=(4, 2, 2))
        self.settle(Wanted((1, 1, 1)))
        _, path = self.plan(mine)
        self.lab.goes("n0")
        try:
            before = self.revision()
            ran = self.lab.cli("apply", "--plan", str(path), "--wait", "accepted")
            must(ran, STALE, "not in yours", "cannot be placed")
            assert self.revision() == before, "something followed from a refusal"
        finally:
            self.lab.comes("n0")
            self.lab.quiet()
        self.took["a_node_goes"] += 1
        self.took["refused"] += 1

    def used_up(self) -> None:
        """A plan that was applied, and then replaced, even by what stood before it: it cannot run again."""
        before, mine = self.stands, self.another(than=self.stands)
        digest, path = self.plan(mine)
        must(self.lab.cli("apply", "--plan", str(path), "--wait", "accepted"), 0)
        self.settle(self.chance.choice((before, dataclasses.replace(before, alias=f"c{self.number}"))))
        root = str(self.lab.directory / "mine")
        how = self.chance.choice((("--plan", str(path)), (root, "--expect", digest)))
        self.refused(lambda: self.lab.cli("apply", *how), "is superseded by revision")
        self.took["used_up"] += 1

    def the_directory_changes(self) -> None:
        """What is in the directory now is not what was planned; the saved plan has its own bytes."""
        mine = self.another(than=self.stands)
        digest, path = self.plan(mine)
        other = dataclasses.replace(mine, alias=f"d{self.number}")
        root = str(self.lab.write(other.files(), "mine"))
        self.refused(lambda: self.lab.cli("apply", root, "--expect", digest), "not in yours")
        must(self.lab.cli("apply", "--plan", str(path), "--wait", "accepted"), 0)
        routed = {row["model"]: row["aliases"] for row in self.lab.client.get("/v1/models")}
        assert routed["alpha"] == [f"alpha-{mine.alias}"], f"other bytes than those of the plan: {routed}"
        self.stands = mine
        self.lab.quiet()
        self.took["the_directory_changes"] += 1

    def beside(self) -> None:
        """Two plans of one moment, applied at the same time: one stands, the other is told by which."""
        first = dataclasses.replace(self.stands, alias=f"e{self.number}")
        second = dataclasses.replace(self.stands, alias=f"f{self.number}")
        paths = [self.plan(wanted)[1] for wanted in (first, second)]
        before, started = self.revision(), threading.Barrier(2)
        answers: list[int] = []

        def post(path: pathlib.Path) -> None:
            saved = load(path)
            client = Client(f"127.0.0.1:{self.lab.port}")
            body = {**saved.upload.body(expect=saved.plan.digest), "saved": promised(saved.plan)}
            started.wait()
            try:
                client.post("/v1/apply", body)
                answers.append(0)
            except Stale as stale:
                answers.append(STALE if "not in yours" in stale.said else -1)
            finally:
                client._http.close()

        threads = [threading.Thread(target=post, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [0, STALE], f"one of two stands: {answers}"
        assert self.revision() == before + 1, "one revision more"
        aliases = self.lab.client.get("/v1/models")[0]["aliases"]
        self.stands = first if aliases == [f"alpha-{first.alias}"] else second
        self.lab.quiet()
        self.took["beside"] += 1
        self.took["refused"] += 1


ROUNDS: Sequence[Callable[[Race], None]] = (
    Race.nothing_moves, Race.somebody_else, Race.a_part, Race.used_up, Race.the_directory_changes, Race.beside,
)  # fmt: skip
RARE = Race.a_node_goes
"""It waits for a node to be missed."""


def must(ran: Ran, code: int, *words: str) -> None:
    """It ended with `code`, and said each of `words`."""
    said = f"{ran.out}\n{ran.err}"
    assert ran.code == code, f"exit {ran.code}, not {code}:\n{said}"
    for each in words:
        assert each in said, f"{each!r} is not in:\n{said}"


def play(
    directory: pathlib.Path, rounds: int, seed: int, only: Sequence[str] = ()
) -> tuple[str, Mapping[str, int]]:
    """So many rounds. Returns what failed, or nothing, and what took effect how often."""
    usual = [step for step in ROUNDS if not only or step.__name__ in only]
    chance = random.Random(seed)
    with Loopback(directory, CARDS, limits=Limits(share=1.0)) as lab:
        race = Race(lab, chance)
        race.settle(race.stands)
        for number in range(rounds):
            step = RARE if number % 20 == 10 else usual[number % len(usual)]
            try:
                step(race)
            except AssertionError as error:
                return f"round {number}, {step.__name__}: {error}", race.took
        return "", race.took


def run(argv: Sequence[str]) -> Outcome:
    """The rounds, with a planted bug if one is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab plan-race", description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="rounds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[step.__name__ for step in ROUNDS], action="append", default=[])
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as directory, contextlib.ExitStack() as stack:
        for target, name, wrong in MUTANTS.get(options.mutant, ()):
            stack.enter_context(planted(target, name, wrong))
        failed, took = play(pathlib.Path(directory), options.n, options.seed, options.only)
    if failed:
        print(failed, file=sys.stderr)
    meant = [step.__name__ for step in ROUNDS[1:] if not options.only or step.__name__ in options.only]
    effects = dict.fromkeys(meant if options.only else [*meant, "again_is_nothing", "refused"], 0)
    if options.n > 10:
        effects[RARE.__name__] = 0
    return Outcome(not failed, {**effects, **took}, {"rounds": options.n}, failed.partition("\n")[0])
