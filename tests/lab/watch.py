"""What editors, git, deployments and crashes do to a catalog that is followed: `python -m tests.lab watch`.

First a control plane, an agent and real engines, whose catalog is edited in every awkward way: each step
proves from outside that its fault happened and which engines ran on. Then every beginning of every sample
file, in this process over the real watch, followed by files and by commits: none may dispatch a stop.
`--every N` takes only each Nth beginning; `--until STEP` ends after a step.
"""

import argparse
import asyncio
import dataclasses
import logging
import pathlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from llmgw.catalog.load import check, read
from tests.control import prefixes
from tests.lab.command import Outcome
from tests.support.stage import PROFILE, Stage
from tests.support.story import Step, Story, must, play
from tests.support.waiting import wait_for

ROOT = pathlib.Path(__file__).parents[2]
SENTENCES = {"alpha": "I am alpha.", "beta": "I am beta."}
TIMERS = {"min_ready": "200ms", "stop_grace": "5s", "lost_grace": "5s", "place_grace": "2s"}
ONE, THREE = {"min": 1, "max": 9}, {"min": 3, "max": 3}
FILES = ("--watch", "files", "--sync", "auto", "--rescan", "2s")
COMMITS = ("--watch", "commits", "--sync", "auto", "--rescan", "2s")


def start(told: Story) -> None:
    """The catalog is a link to a directory; what stands in it is served without anybody applying it."""
    stage = told.stage
    stage.server.gate.set()
    stage.profile()
    stage.model("alpha", scaling={"min": 1, "max": 3})
    link(told).symlink_to(catalog(told))
    told.running["agent"] = stage.agent("node")
    told.running["control"] = stage.control("--catalog", str(link(told)), *FILES)
    wait_for(lambda: answers(told) and told.ready("alpha"), "alpha serves", within=30.0)
    told.took_effect["adopted_by_itself"] = status(told)["revision"]


def renames(told: Story) -> None:
    """Three times a file is renamed over the old one, and each is followed."""
    path = catalog(told) / "alpha.yaml"
    inodes = {path.stat().st_ino}
    for replicas in (2, 3):
        began = time.perf_counter()
        rename_over(told, "alpha", scaling={"min": replicas, "max": 3})
        inodes.add(path.stat().st_ino)
        wait_for(lambda n=replicas: wanted(told, "alpha") == n, f"{replicas} are wanted")  # type: ignore[misc]
        told.figures["followed_s"] = round(time.perf_counter() - began, 2)
    rename_over(told, "alpha", scaling=THREE, aliases=["first"])
    wait_for(lambda: aliases(told, "alpha") == ["first"], "the third rename is followed")
    wait_for(lambda: len(told.ready("alpha")) == 3, "three engines run", within=30.0)
    must(len(told.pids("alpha")) == 3, "no engine too many")
    told.took_effect["renames"] = 3


def burst(told: Story) -> None:
    """Ten edits in a second end in the last one: one adoption, one engine."""
    before = status(told)["revision"]
    for replicas in (9, 3, 5, 2, 8, 4, 7, 6, 3, 1):
        rename_over(told, "beta", scaling={"min": replicas, "max": 9})
        time.sleep(0.05)
    wait_for(lambda: told.ready("beta"), "beta serves", within=30.0)
    must(wanted(told, "beta") == 1, "the last edit is what stands")
    must(status(told)["revision"] == before + 1, "ten edits are one revision")
    started = [
        entry
        for entry in events(told)
        if entry["about"].startswith("beta/") and "start rank" in entry["said"]
    ]
    must(len(started) == 1 and len(told.pids("beta")) == 1, f"one engine was started: {started}")
    told.took_effect["burst_edits"] = 10


def halves(told: Story) -> None:
    """A model names a profile that is written 300 ms later: exactly one reload, and no error on the way."""
    before, seen = status(told)["revision"], events(told)[-1]["number"]
    rename_over(told, "beta", scaling=ONE, profiles=["small", "second"])
    half = check(read(catalog(told)))
    must(half.catalog is None, "the half by itself is invalid")
    time.sleep(0.3)
    (catalog(told) / "second.yaml").write_text(PROFILE.format(length=2048).replace("small", "second"))
    wait_for(lambda: status(told)["revision"] > before, "the whole is adopted")
    must(status(told)["revision"] == before + 1, "one reload")
    held = [entry for entry in events(told, seen) if entry["kind"] == "alarm"]
    must(not held, f"nobody was alarmed: {held}")
    told.took_effect["half_was_invalid"] = [problem.code for problem in half.diagnostics]


def moved_away(told: Story) -> None:
    """The directory is gone, then back: loud, and not one engine notices."""
    before, revision = told.pids(), status(told)["revision"]
    away = told.stage.directory / "away"
    catalog(told).rename(away)
    said = wait_for(lambda: (status(told)["followed"]["blind"] or {}).get("said"), "it is said to be gone")
    must(told.pids() == before and status(told)["revision"] == revision, "everything runs on")
    must("HELD" in told.stage.cli("status").stdout, "status is loud")
    shutil.copytree(away, catalog(told))
    wait_for(lambda: status(told)["followed"]["blind"] is None, "it is seen again")
    rename_over(told, "alpha", scaling=THREE, aliases=["first", "second"])
    wait_for(
        lambda: aliases(told, "alpha") == ["first", "second"],
        "what is written in the new directory is followed",
    )
    must(told.pids() == before, "the same engines")
    told.took_effect["gone"] = said


def swapped(told: Story) -> None:
    """The link leads elsewhere in one step, as a deployment does it."""
    before = told.pids()
    other = told.stage.directory / "release-2"
    shutil.copytree(catalog(told), other)
    text = (other / "alpha.yaml").read_text()
    (other / "alpha.yaml").write_text(text.replace('"second"]', '"second", "third"]'))
    beside = told.stage.directory / "beside"
    beside.symlink_to(other)
    beside.replace(link(told))
    wait_for(lambda: aliases(told, "alpha")[2:] == ["third"], "the other directory is followed")
    must(told.pids() == before, "the same engines")
    told.took_effect["swapped_to"] = link(told).readlink().name
    rename_over(told, "alpha", scaling=THREE, aliases=["first", "second", "third", "fourth"])
    beside.symlink_to(catalog(told))
    beside.replace(link(told))
    wait_for(lambda: aliases(told, "alpha")[3:] == ["fourth"], "and back")


def removed(told: Story) -> None:
    """A file disappears: its engine stays, and status names the model until a person applies or it is back."""
    before, path = told.pids(), catalog(told) / "beta.yaml"
    text = path.read_text()
    path.unlink()
    hold = wait_for(lambda: status(told)["followed"]["hold"], "the removal is held")
    must(hold["why"] == "removal" and "model beta is removed" in hold["details"][0], f"it is named: {hold}")
    path.write_text(text)
    wait_for(lambda: status(told)["followed"]["hold"] is None, "it is back")
    must(told.pids() == before, "the same engines")
    told.took_effect["removal_held"] = hold["why"] == "removal"


def broken(told: Story) -> None:
    """A broken file is held with its line, over a kill -9 of the control plane; then it is repaired."""
    before, revision = told.pids(), status(told)["revision"]
    rename_over(told, "beta", scaling=ONE, profiles=["small", "none"])
    hold = wait_for(lambda: status(told)["followed"]["hold"], "it is held")
    must("beta.yaml:" in hold["details"][0] and "none" in hold["details"][0], f"it has its place: {hold}")
    told.running["control"].kill()
    must(not answers(told), "the control plane is really away")
    told.running["control"] = told.stage.control("--catalog", str(link(told)), *FILES)
    wait_for(lambda: answers(told) and told.settled(), "the next one knows the fleet", within=20.0)
    again = status(told)
    must(again["followed"]["hold"]["since"] == hold["since"], "it is held since then")
    must(
        again["revision"] == revision and told.pids() == before,
        "the last good one stands, by the same engines",
    )
    rename_over(told, "beta", scaling=ONE, profiles=["small"], aliases=["mended"])
    wait_for(lambda: status(told)["followed"]["hold"], "losing a profile waits for a person")
    rename_over(told, "beta", scaling=ONE, profiles=["small", "second"], aliases=["mended"])
    wait_for(lambda: aliases(told, "beta") == ["mended"], "the repaired one is adopted")
    told.took_effect["held_over_a_kill"] = hold["details"][0]


def rolled_back(told: Story) -> None:
    """A person applies something else from elsewhere: the files do not win it back until they change."""
    other = told.stage.directory / "rollback"
    shutil.copytree(catalog(told), other)
    text = (other / "beta.yaml").read_text()
    (other / "beta.yaml").write_text(text.replace('["mended"]', '["older"]'))
    done = told.stage.cli("apply", str(other), "--yes")
    must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stderr}")
    looked = events(told)[-1]["number"]
    hold = wait_for(lambda: status(told)["followed"]["hold"], "what was left is held")
    time.sleep(4.5)  # two rescans: nothing happens in them
    must(hold["why"] == "left" and aliases(told, "beta") == ["older"], f"the rollback stands: {hold}")
    must(not [e for e in events(told, looked) if "adopted" in e["said"]], "nothing was adopted meanwhile")
    rename_over(told, "beta", scaling=ONE, profiles=["small", "second"], aliases=["older", "newest"])
    wait_for(lambda: aliases(told, "beta") == ["older", "newest"], "the next edit is followed")
    told.took_effect["left"] = hold["said"]


def commits(told: Story) -> None:
    """Followed by commits: one is adopted while another file is dirty and broken; five in a row end in the last."""
    stage, before = told.stage, told.pids()
    stage.commit("as it stands")
    told.running["control"].stop()
    told.running["control"] = stage.control("--catalog", str(catalog(told)), *COMMITS)
    wait_for(lambda: answers(told) and told.settled(), "the next one knows the fleet", within=20.0)
    (catalog(told) / "beta.yaml").write_text("kind: mod")
    rename_over(told, "alpha", scaling=THREE, aliases=["committed"])
    stage.git("commit", "--quiet", "--message", "only alpha", "catalog/alpha.yaml")
    wait_for(lambda: aliases(told, "alpha") == ["committed"], "the commit is adopted")
    said = wait_for(lambda: status(told)["followed"]["dirty"], "what is dirty is reported")
    must(said == ["catalog/beta.yaml"], f"exactly that file: {said}")
    for number in range(5):
        rename_over(told, "alpha", scaling=THREE, aliases=[f"commit-{number}"])
        stage.git("commit", "--quiet", "--message", f"number {number}", "catalog/alpha.yaml")
    wait_for(lambda: aliases(told, "alpha") == ["commit-4"], "the last commit stands")
    must(told.pids() == before, f"the same engines: {before} {told.pids()}")
    told.took_effect["dirty"] = said


STEPS: Sequence[Step] = (
    start, renames, burst, halves, moved_away, swapped, removed, broken, rolled_back, commits,
)  # fmt: skip


def run(argv: Sequence[str]) -> Outcome:
    """The stories, then the beginnings."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab watch")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each Nth beginning only")
    parser.add_argument("--until", default="", choices=["", *(step.__name__ for step in STEPS)])
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as directory:
        told = Story(Stage(pathlib.Path(directory), SENTENCES, timers=TIMERS))
        with told.stage:
            failed = play(told, STEPS, options.until)
    took_effect, figures = dict(told.took_effect), dict[str, Any](told.figures)
    if failed or options.until:
        return Outcome(not failed, took_effect, figures, f"{failed} failed" if failed else "")
    stops = 0
    for name, follow in (("files", prefixes.by_files), ("commits", prefixes.by_commits)):
        counts = beginnings(follow, options.every)
        figures[f"prefixes_by_{name}"] = dataclasses.asdict(counts)
        took_effect[f"prefixes_seen_by_{name}"] = counts.looked_at == counts.written and counts.written
        stops += counts.stops
        if name == "files":
            took_effect["prefixes_that_would_stop"] = counts.would_stop
            took_effect["prefixes_held"] = counts.held
    return Outcome(not stops, took_effect, figures, f"{stops} stops were dispatched" if stops else "")


def beginnings(follow: Any, every: int) -> prefixes.Counts:
    """Every beginning of the sample files, followed in a directory of its own."""
    logging.getLogger("llmgw.control.watch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as directory:
        counts: prefixes.Counts = asyncio.run(
            follow(pathlib.Path(directory), prefixes.samples(ROOT / "catalog"), every)
        )
        return counts


def catalog(told: Story) -> pathlib.Path:
    """The directory that people edit."""
    return told.stage.repository / "catalog"


def link(told: Story) -> pathlib.Path:
    """The link to it that the control plane follows."""
    return told.stage.directory / "live"


def rename_over(told: Story, model: str, **fields: Any) -> None:
    """Write a model as editors do: beside the old file, renamed over it."""
    beside = catalog(told) / f".{model}.new"
    beside.write_text(told.stage.document(model, **fields))
    beside.replace(catalog(told) / f"{model}.yaml")


def status(told: Story) -> Any:
    """What `llmgw status -o json` says."""
    return told.stage.json("status")


def events(told: Story, after: int = 0) -> list[dict[str, Any]]:
    """The journal since `after`."""
    return [entry for entry in told.stage.json("events")["items"] if entry["number"] > after]


def answers(told: Story) -> bool:
    """Whether the control plane answers."""
    return told.stage.cli("status").returncode == 0


def wanted(told: Story, model: str) -> int:
    """How many replicas are wanted of a model."""
    return int(status(told)["models"].get(model, {"wanted": 0})["wanted"])


def aliases(told: Story, model: str) -> list[str]:
    """The aliases of a model, as the control plane routes it."""
    return next((row["aliases"] for row in told.stage.json("models")["items"] if row["model"] == model), [])
