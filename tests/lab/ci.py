"""A pull request from branch to fleet, by the generated workflow's own commands: `python -m tests.lab ci`.

A bare repository is `origin`, a stand-in is GitHub, and the jobs of the file that `llmgw init --ci github` writes
are run from that file, each in a clone of its own, against a real control plane, agent and engines. What was
reviewed is applied; what is another plan by then, was cut, forged, in conflict or planned against nothing is not.
`--mutant NAME` plants a bug in the `llmgw` of the jobs, and the lab must end red.
"""

import argparse
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from llmgw.planning.markdown import Header, header_line, read_header
from tests.lab.command import Outcome
from tests.support import github
from tests.support.processes import LLMGW
from tests.support.stage import Stage
from tests.support.story import Story, must, play
from tests.support.waiting import wait_for
from tests.support.workflow import Ran, Workflow

SENTENCES = {name: f"I am {name}." for name in ("alpha", "beta", "gamma")}
TIMERS = {"min_ready": "200ms", "stop_grace": "5s", "lost_grace": "5s", "place_grace": "1s"}
ROOT = pathlib.Path(__file__).parents[2]
MUTANTS = {
    "takes-any-author": "from llmgw.cli import github\ngithub.GitHub.user = lambda self: 'mallory'\n",
    "expects-nothing": "from llmgw.cli.doing import ci\nci.plan_id = lambda sha, cluster: print('')\n",
    "plans-the-branch": (
        "from llmgw.cli import revisions as r\n"
        "r.read_merged = lambda path, ref, base: r.Compared(r.read_ref(path, ref), None)\n"
    ),
    "cut-is-whole": "from llmgw.planning import markdown as m\nright = m.read_header\n"
    "import dataclasses\n"
    "from llmgw.cli.doing import ci\n"
    "ci.read_header = lambda t: (h := right(t)) and dataclasses.replace(h, truncated=False)\n",
}
"""Bug → what is run before the command of a job."""


class Tour(Story):
    """The story, with a repository that others push to."""

    github: github.StandIn
    origin: pathlib.Path
    number: int = 0

    def pull_request(self, branch: str) -> tuple[Ran, int]:
        """The jobs of a pull request of `branch`: validate and plan, in a clone with its head checked out."""
        self.number += 1
        return self.plan(branch, self.number), self.number

    def plan(self, branch: str, number: int, **variables: str) -> Ran:
        """The job `plan` of pull request `number`."""
        clone, sha = self.clone(branch)
        event = {
            "number": number,
            "pull_request": {"number": number, "head": {"sha": sha, "repo": {"fork": False}}},
        }
        workflow = self.workflow(clone, event, **variables)
        checked = workflow.run("validate", clone, self.environment(clone, event, sha))
        must(checked.code == 0, f"validate: {checked.said}")
        return workflow.run("plan", clone, self.environment(clone, event, sha))

    def merged(self, branch: str, number: int) -> Ran:
        """Merge it, and run the job `apply` of the push."""
        stage = self.stage
        stage.git("merge", "--quiet", "--no-ff", "--message", f"Merge pull request #{number}", branch)
        stage.git("push", "--quiet", "origin", "main")
        clone, sha = self.clone("main")
        self.github.merged[number] = sha
        return self.workflow(clone, {}).run("apply", clone, self.environment(clone, {}, sha))

    def clone(self, branch: str) -> tuple[pathlib.Path, str]:
        """What `actions/checkout` leaves: everything, with `branch` checked out."""
        place = pathlib.Path(tempfile.mkdtemp(dir=self.stage.directory, prefix="runner-"))
        subprocess.run(["git", "clone", "--quiet", str(self.origin), str(place)], check=True)
        subprocess.run(
            ["git", "-C", str(place), "checkout", "--quiet", branch], check=True, capture_output=True
        )
        sha = subprocess.run(
            ["git", "-C", str(place), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        return place, sha

    def workflow(self, clone: pathlib.Path, event: dict[str, Any], **variables: str) -> Workflow:
        """The generated file with what GitHub would fill in."""
        known = {
            "github": {
                "event": event, "event_name": "pull_request" if event else "push", "base_ref": "main",
                "token": "ours", "repository": self.github.repository,
            },
            "vars": {
                "LLMGW_SNAPSHOT_URL": f"{self.github.address}/fleet.json",
                "LLMGW_SERVER": self.stage.server_address,
                **variables,
            },
        }  # fmt: skip
        return Workflow(clone / ".github" / "workflows" / "llmgw.yml", known)

    def environment(self, clone: pathlib.Path, event: dict[str, Any], sha: str) -> dict[str, str]:
        """What GitHub's runner sets."""
        (self.stage.directory / "event.json").write_text(json.dumps(event))
        return {
            "PATH": os.pathsep.join((str(self.stage.directory / "bin"), os.environ["PATH"])),
            "GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_SHA": sha,
            "GITHUB_API_URL": self.github.address, "GITHUB_REPOSITORY": self.github.repository,
            "GITHUB_EVENT_PATH": str(self.stage.directory / "event.json"),
            "GITHUB_STEP_SUMMARY": str(clone / "summary.md"),
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
        }  # fmt: skip

    def branch(self, name: str) -> None:
        """Begin a branch at main."""
        self.stage.git("checkout", "--quiet", "-B", name, "main")

    def push(self, name: str, message: str) -> None:
        """Commit the catalog, push the branch, go back to main."""
        done = self.stage.cli("fmt", "catalog")
        must(done.returncode == 0, done.stderr)
        self.stage.commit(message)
        self.stage.git("push", "--quiet", "--force", "origin", name)
        self.stage.git("checkout", "--quiet", "main")

    def snapshot(self) -> None:
        """What a timer of the fleet does: export it for pull requests."""
        done = self.stage.cli("fleet", "export", "--redact")
        must(done.returncode == 0, done.stderr)
        self.github.files["/fleet.json"] = done.stdout.encode()

    def status(self) -> Any:
        """What stands."""
        return self.stage.json("status")


def start(tour: Tour) -> None:
    """A repository that `init --ci github` began, pushed to a bare one; alpha is applied and serves."""
    stage = tour.stage
    stage.server.gate.set()
    stage.profile()
    stage.model("alpha", scaling={"min": 1, "max": 2})
    must(stage.cli("init", "--ci", "github", ".").returncode == 0, "the workflow is written")
    stage.git("add", "--all", ".")
    subprocess.run(
        ["git", "init", "--quiet", "--bare", "--initial-branch=main", str(tour.origin)], check=True
    )
    stage.git("remote", "add", "origin", str(tour.origin))
    tour.push("main", "a catalog")
    tour.running["control"] = stage.control()
    tour.running["agent"] = stage.agent("node")
    wait_for(lambda: '"Ready"' in stage.cli("nodes", "-o", "json").stdout, "the node registers", within=60.0)
    done = stage.cli("apply", "catalog", "--yes", within=60.0)
    must(done.returncode == 0, f"apply: {done.stdout}{done.stderr}")
    tour.snapshot()
    tour.took_effect["alpha_serves"] = len(tour.ready("alpha"))


def reviewed(tour: Tour) -> None:
    """The comment shows the merge result: main's own pending change apart, and no revert of it."""
    stage = tour.stage
    tour.branch("add-beta")
    stage.model("beta")
    tour.push("add-beta", "beta")
    stage.model("alpha", scaling={"min": 1, "max": 2}, aliases=["first"])
    tour.push("main", "an alias that nobody applied yet")
    ran, number = tour.pull_request("add-beta")
    must(ran.code == 0, f"the plan job: {ran.said}")
    (comment,) = tour.github.comments[number]
    must(comment.author == github.BOT, "it is ours")
    header = read_header(comment.body)
    must(header is not None and not header.truncated, f"its header: {comment.body[:200]}")
    change, pending = comment.body.partition("**Already pending")[::2]
    must(
        "beta" in change and "first" not in change.partition("<details>")[0], f"this change is beta: {change}"
    )
    must("aliases none -&#62; first" in pending, f"main's alias is pending: {pending}")
    must("127.0.0.1" not in comment.body and "node-0001" in comment.body, "the fleet is redacted")
    tour.took_effect["comments"] = 1


def sticky(tour: Tour) -> None:
    """Another push rewrites the comment; what a stranger wrote with a header of ours is not touched or believed."""
    forged = Header("llmgw", "00" * 32, "forged")
    tour.github.says(tour.number, "mallory", f"{header_line(forged)}\nlooks good to me")
    ran = tour.plan("add-beta", tour.number)
    must(ran.code == 0, ran.said)
    authors = [each.author for each in tour.github.comments[tour.number]]
    must(authors == [github.BOT, "mallory"], f"one comment of ours: {authors}")
    must("PATCH /repos/acme/models/issues/comments/1" in tour.github.asked, "it was rewritten")
    tour.took_effect["rewritten"] = tour.github.asked.count("PATCH /repos/acme/models/issues/comments/1")
    tour.took_effect["forged"] = 1


def applied(tour: Tour) -> None:
    """After the merge the plan that was reviewed is applied, with main's pending alias in it."""
    before = tour.status()["revision"]
    ran = tour.merged("add-beta", tour.number)
    must(ran.code == 0, f"the apply job: {ran.said}")
    status = tour.status()
    must(status["revision"] == before + 1, "one revision more")
    must(len(tour.ready("beta")) == 1, "beta serves")
    tour.took_effect["applied"] = status["revision"]


def moved_on(tour: Tour) -> None:
    """Somebody applies something else meanwhile: the reviewed plan is another one now, and nothing is changed."""
    stage = tour.stage
    tour.snapshot()
    tour.branch("add-gamma")
    stage.model("gamma")
    tour.push("add-gamma", "gamma")
    ran, number = tour.pull_request("add-gamma")
    must(ran.code == 0, ran.said)
    # Straight to main, after the review: the merge is more than what was looked at.
    stage.model("beta", scaling={"min": 2, "max": 2})
    tour.push("main", "one more beta, unreviewed")
    before = tour.status()["revision"]
    ran = tour.merged("add-gamma", number)
    must(ran.code == 5, f"the apply job ends with {ran.code}: {ran.said}")
    must(tour.status()["revision"] == before and not tour.ready("gamma"), "nothing was changed")
    tour.took_effect["stale"] = ran.code
    done = stage.cli("apply", "catalog", "--yes", within=60.0)
    must(done.returncode == 0, done.stderr)


def conflict(tour: Tour) -> None:
    """A branch that cannot be merged has no plan: exit 3, and no comment that says otherwise."""
    stage = tour.stage
    tour.snapshot()
    tour.branch("scale")
    stage.model("beta", scaling={"min": 3, "max": 3})
    tour.push("scale", "three")
    stage.model("beta", scaling={"min": 1, "max": 4})
    tour.push("main", "one")
    ran, number = tour.pull_request("scale")
    must(ran.code == 3 and "in conflict: catalog/beta.yaml" in ran.said, f"{ran.code}: {ran.said}")
    must(number not in tour.github.comments, "no comment")
    tour.took_effect["conflict"] = ran.code


def nothing_to_plan_against(tour: Tour) -> None:
    """Without a snapshot the job is red: nobody takes the absence of a plan for a good one."""
    ran = tour.plan("add-gamma", 99, LLMGW_SNAPSHOT_URL="")
    must(ran.code == 1 and "plan skipped" in ran.said, f"{ran.code}: {ran.said}")
    tour.took_effect["no_snapshot"] = ran.code


def not_seen_whole(tour: Tour) -> None:
    """A comment that was cut, or only a forged one, approves nothing: exit 4, nothing is changed."""
    stage = tour.stage
    done = stage.cli("apply", "catalog", "--yes", within=60.0)
    must(done.returncode == 0, done.stderr)
    before = tour.status()["revision"]
    for what, author, truncated in (("cut", github.BOT, True), ("forged", "mallory", False)):
        tour.branch(what)
        stage.model("gamma", aliases=[what])
        tour.push(what, what)
        tour.number += 1
        # The right digest, so that nothing but the comment itself is in its way.
        stage.git("checkout", "--quiet", what)
        digest = stage.json("plan", "catalog")["digest"]
        stage.git("checkout", "--quiet", "main")
        tour.github.says(tour.number, author, header_line(Header("llmgw", digest, what, truncated)))
        ran = tour.merged(what, tour.number)
        must(ran.code == 4, f"{what}: the apply job ends with {ran.code}: {ran.said}")
        tour.took_effect[what] = ran.code
    must(tour.status()["revision"] == before, "nothing was changed")


STEPS = (start, reviewed, sticky, applied, moved_on, conflict, nothing_to_plan_against, not_seen_whole)


def run(argv: Sequence[str]) -> Outcome:
    """The story."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab ci")
    parser.add_argument("--until", default="", choices=["", *(step.__name__ for step in STEPS)])
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    options = parser.parse_args(argv)
    if shutil.which("curl") is None:
        return Outcome(False, said="curl is missing")
    with tempfile.TemporaryDirectory(prefix="llmgw-lab-") as name:
        directory = pathlib.Path(name)
        _programs(directory / "bin", options.mutant)
        tour = Tour(Stage(directory, SENTENCES, timers=TIMERS))
        tour.github, tour.origin = github.StandIn(), directory / "origin.git"
        with github.serving(tour.github), tour.stage:
            failed = play(tour, STEPS, options.until)  # type: ignore[arg-type]  # each takes a Tour
    return Outcome(
        not failed, dict(tour.took_effect), {"steps": len(STEPS)}, f"{failed} failed" if failed else ""
    )


def _programs(directory: pathlib.Path, mutant: str | None) -> None:
    """What the jobs find on their path: llmgw as installed (with a bug), and a pip that has nothing to do."""
    directory.mkdir()
    code = f"{MUTANTS[mutant] if mutant else ''}from llmgw.cli.main import main\nmain()\n"
    (directory / "main.py").write_text(code)
    for name, text in (
        (
            "llmgw",
            f'exec "{sys.executable}" "{directory / "main.py"}" "$@"' if mutant else f'exec "{LLMGW}" "$@"',
        ),
        ("pip", "exit 0"),
    ):
        path = directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
