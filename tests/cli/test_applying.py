"""An apply on the screen: its price, its files, what moves while it goes on, and how that reads afterwards."""

import base64
import dataclasses
import io
import json
import pathlib
from collections.abc import Iterator

import pytest

from llmgw.cli import following
from llmgw.cli.doing.apply import cost
from llmgw.cli.doing.history import history_lines
from llmgw.cli.exits import Exit
from llmgw.cli.following import Followed, follow
from llmgw.cli.live import Plain, region
from llmgw.cli.main import run as llmgw
from llmgw.cli.moving import MOST, Estimates, failure_hint, mark, moving, worth_a_line
from llmgw.cli.saved import load, save
from llmgw.cli.uploads import upload_of
from llmgw.errors import CatalogInvalid, Failed, Unreachable
from llmgw.fleet.shard import Progress
from llmgw.planning.costs import Timing
from llmgw.planning.plan import Plan, Service, digest_of
from llmgw.planning.rows import Row
from llmgw.planning.screen import ReplicaRow
from tests.control.plane import files
from tests.control.repository import Repository
from tests.lab.guards import catalog
from tests.support import recorded
from tests.support.loopback import Loopback


def row(symbol: str, model: str, **more: object) -> Row:
    return Row(symbol, model, "code", "said", **more)  # type: ignore[arg-type]


def plan(*rows: Row, service: tuple[Service, ...] = ()) -> Plan:
    return Plan("d" * 64, 1, rows, service)


def test_the_price_of_a_plan() -> None:
    """What starts, is replaced and stops, what is fetched, and who has fewer ready on the way."""
    rows = (row("+", "a", fetch=65_500_000_000), row("+", "b", fetch=None), row("-/+", "c"), row("-", "d"))
    service = (Service("c", 2, 1, 2), Service("d", 1, 0, 0), Service("e", 1, 1, 1))
    assert cost(plan(*rows, service=service)) == (
        "It starts 2 replicas, replaces 1 replica, stops 1 replica, fetches 65.5 GB and 1 of unknown size;"
        " on the way c from 2 to 1 ready, d from 1 to 0 ready."
    )
    assert cost(plan(row("~", "a"))) == "It starts and stops nothing."
    many = tuple(Service(name, 1, 0, 1) for name in "abcde")
    assert cost(plan(service=many)).endswith("c from 1 to 0 ready, 2 more.")


def test_what_moves_is_a_few_lines_with_their_estimates() -> None:
    """What rests is left out, ten lines at most, untrusted names do no harm."""
    estimates = Estimates(plan(row("+", "a", nodes=("n0",), starting=Timing(160.0, "guess"))))
    rows = [
        ReplicaRow("a/ab", "a", "Starting", 0, 1, ("n0",), age=62.0, detail="0 of 1 ranks started"),
        ReplicaRow("a/cd", "a", "Starting", 0, 1, ("n1",), age=1.0),
        ReplicaRow("b/x", "b", "Fetching", 0, 1, ("n0", "n1", "n2"), progress=Progress("c", 5, 10, 0, 0.0)),
        ReplicaRow("c/x", "c", "Ready", 1, 1, ("n0",)),
        ReplicaRow("\x1b[2J", "d", "Pending", 0, 1, detail="fits nowhere"),
    ]
    lines = moving(rows, estimates)
    assert (
        lines[0] == "  ..    a/ab  Starting  n0       0 of 1 ranks started  1m2s, about 2m40s planned in all"
    )
    assert lines[1] == "  ..    a/cd  Starting  n1"
    assert lines[2].startswith("  ..    b/x   Fetching  n0,n1 …  5 B of 10 B  50 %")
    assert "\x1b" not in lines[3]
    assert len(lines) == 4
    crowd = [ReplicaRow(f"a/{n}", "a", "Draining", 1, 1) for n in range(MOST + 3)]
    assert moving(crowd, estimates)[MOST:] == ["        and 3 more"]


def test_what_was_planned_stands_beside_what_it_took() -> None:
    """Where there was an estimate, once, at the end of the start."""
    estimates = Estimates(plan(row("+", "a", nodes=("n0",), starting=Timing(50.0, "measured: 50s, 5 times"))))

    def at(second: int, about: str, said: str) -> dict[str, str]:
        kind = "action" if said.startswith("assign") else "shard"
        return {"kind": kind, "about": about, "said": said, "at": f"2026-01-01T00:00:{second:02}+00:00"}

    assert estimates.beside(at(1, "a/ab", "assign rank 0 to n0: new")) == ""
    assert estimates.beside(at(2, "a/ab", "rank 0 started")) == ""
    assert estimates.beside(at(42, "a/ab", "rank 0 ready")) == "  after 41s (planned 50s)"
    assert estimates.beside(at(43, "a/cd", "assign rank 0 to n0: new")) == ""
    assert estimates.beside(at(44, "a/cd", "rank 0 ready")) == ""
    assert Estimates(None).beside(at(2, "a/ab", "rank 0 ready")) == ""


def test_what_was_planned_of_a_start_is_held_against_that_start() -> None:
    """Not against the apply: a replica that had to wait for another's end took no longer for it."""
    estimates = Estimates(plan(row("+", "a", nodes=("n0",), starting=Timing(5.0, "guess"))))
    entry = {"kind": "shard", "about": "a/ab", "said": "rank 0 ready", "at": "2026-01-01T01:00:04+00:00"}
    assigned = {"kind": "action", "said": "assign rank 0 to n0: new", "at": "2026-01-01T01:00:00+00:00"}
    assert estimates.beside(entry) == ""
    estimates.beside({**entry, **assigned})
    assert estimates.beside(entry) == "  after 4s (planned 5s)"


def test_which_events_are_worth_a_line_beside_a_region() -> None:
    """Ends and alarms; orders and steps are in the region already."""

    def entry(kind: str, said: str) -> dict[str, str]:
        return {"kind": kind, "said": said, "about": "a/ab"}

    shown = [
        worth_a_line(entry("shard", said)) for said in ("rank 0 ready", "rank 0 starting", "rank 1 failed: x")
    ]
    assert shown == [True, False, True]
    assert worth_a_line(entry("alarm", "anything"))
    assert not worth_a_line(entry("action", "assign rank 0"))
    gone = entry("shard", "rank 0 gone: exit 1: error: no such flag")
    assert [mark(gone), mark(gone, {"a/ab"}), mark(gone, {"b/cd"})] == ["", "", ""]
    assert mark(entry("shard", "rank 0 gone: killed by SIGKILL")) == ""
    assert mark(entry("shard", "rank 0 gone: the catalog no longer asks for it")) == "ok"
    assert mark(entry("shard", "rank 1 failed: exit 1"), {"a/ab"}) == "FAIL"
    for reason in ("its successor is ready", "rank 1 failed: exit 1"):
        stopping = entry("shard", f"rank 0 stopping: {reason}")
        assert (mark(stopping), worth_a_line(stopping), failure_hint(stopping)) == ("", False, "")
    hint = failure_hint(entry("shard", "rank 0 failed: exit 1"))
    assert hint.endswith("Logs: llmgw logs a/ab   Why: llmgw why a")
    assert not failure_hint(entry("shard", "rank 0 ready"))


def test_without_a_terminal_what_has_not_moved_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain lines on stderr."""
    with region(io.StringIO()) as shown:
        assert isinstance(shown, Plain)
        for lines in (["  a", "  b"], ["  a", "  c"], ["  a", "  c"]):
            shown.draw(lines)
        shown.say("done")
    assert capsys.readouterr().err.split() == ["a", "b", "c", "done"]


class Failing:
    """A client that hears of one failure, then that all is done."""

    def __init__(self) -> None:
        self.entries = [
            {"number": 7, "kind": "shard", "about": "a/ab", "said": "rank 0 failed: exit 1"},
            {"number": 8, "kind": "shard", "about": "a/ab", "said": "rank 0 failed: exit 1"},
        ]

    def get(self, path: str, **query: int) -> object:
        if path == "/v1/events":
            return [entry for entry in self.entries if entry["number"] > query["after"]]
        return {"ended": "now", "result": "superseded by revision 4 by dana", "waiting": []}

    def lines(self, path: str, **query: object) -> Iterator[dict[str, str]]:
        assert (path, query["name"]) == ("/v1/logs", "a/ab")
        yield {"replica": "a/ab"}
        said = "".join(f"line {number}\n" for number in range(9)).encode()
        yield {"data": base64.b64encode(said[:20]).decode()}
        yield {"data": base64.b64encode(said[20:] + b"\x1b[2J\n").decode()}


def test_a_failure_shows_the_engines_own_last_lines_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Five lines, without what a terminal would obey, and what to run next; another apply is named at the end."""
    assert follow(Failing(), Followed(3, 6), 10.0) == Exit.FAILED  # type: ignore[arg-type]
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "|" in line] == [
        *(f"          | line {number}" for number in (5, 6, 7, 8)),
        "          | \N{REPLACEMENT CHARACTER}[2J",
    ]
    assert said[-1].startswith("revision 3 is superseded by revision 4 by dana")


class Restarting:
    """A client of a fleet that comes up again under a revision that was applied long ago."""

    def __init__(self) -> None:
        self.looks = 0

    def get(self, path: str, **_: int) -> object:
        if path == "/v1/events":
            return []
        assert path == "/v1/status", "the record of that apply has ended: it is not what is waited for"
        self.looks += 1
        return {"outstanding": ["a: 0 of 1 ready"] if self.looks < 3 else []}

    def read(self, *_: object) -> tuple[ReplicaRow, ...]:
        return ()


def test_what_stood_already_is_waited_for_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """`llmgw up` again: nothing to apply, and nothing is ready yet."""
    client = Restarting()
    assert follow(client, Followed(1, 0, whole=True), 10.0) == Exit.DONE  # type: ignore[arg-type]
    assert client.looks == 3
    assert capsys.readouterr().err.startswith("done in ")


class Leaving:
    """A client of a control plane that goes after the first look, for `looks` looks, and counts events anew then."""

    def __init__(self, looks: int) -> None:
        self.looks, self.away = 0, looks
        self.server = "127.0.0.1:7600"

    def get(self, path: str, **query: int) -> object:
        if path == "/v1/events":
            epoch = 1 if self.looks == 1 else 2
            news = {
                "number": 9 - 7 * (epoch - 1),
                "kind": "node",
                "about": "n1",
                "said": f"seen by epoch {epoch}",
            }
            return [news] if news["number"] > query["after"] else []  # type: ignore[operator]
        self.looks += 1
        if 1 < self.looks <= 1 + self.away:
            raise Unreachable("cannot reach the control plane at 127.0.0.1:7600: connection refused")
        waiting = ["a: 0 of 1 ready"] if self.looks < self.away + 4 else []
        return {
            "ended": "",
            "result": "",
            "waiting": waiting,
            "outstanding": waiting,
            "epoch": 1 + (self.looks > 1),
        }

    def read(self, *_: object) -> tuple[ReplicaRow, ...]:
        return ()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("whole", [False, True])
def test_a_control_plane_that_is_started_again_ends_no_apply(
    whole: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said once, with how to go on later; what the new one tells is told, though its numbers are smaller."""
    client = Leaving(5)
    assert follow(client, Followed(3, 6, whole=whole), 60.0) == Exit.DONE  # type: ignore[arg-type]
    assert [line.strip() for line in capsys.readouterr().err.splitlines()[:-1]] == [
        "n1  seen by epoch 1",
        "cannot reach the control plane at 127.0.0.1:7600: connection refused; the work goes on, asking again."
        " Follow later: llmgw apply --attach 3",
        "the control plane answers again",
        "n1  seen by epoch 2",
    ]


@pytest.mark.usefixtures("impatient")
def test_a_control_plane_that_stays_away_is_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    """After the limit of the apply, and not before: nobody knows that it failed."""
    assert follow(Leaving(10**9), Followed(3, 6), 0.05) == Exit.TIMEOUT  # type: ignore[arg-type]
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("connection refused; what it began goes on. Follow later: llmgw apply --attach 3")
    )


class Standing:
    """A client of a fleet that stands as it is: what there is to see, look for look, the last of it for good.

    Each look is the nodes, the unplaced, the rows of replicas, and the newest event; it begins with the rows.
    """

    def __init__(self, *looks: tuple[dict[str, str], list[str], list[ReplicaRow], int]) -> None:
        self._looks, self.looks = looks, 0

    @property
    def _now(self) -> tuple[dict[str, str], list[str], list[ReplicaRow], int]:
        return self._looks[max(0, min(self.looks, len(self._looks)) - 1)]

    def get(self, path: str, **query: int) -> object:
        nodes, unplaced, _, event = self._now
        if path == "/v1/events":
            news = {"number": event, "kind": "node", "about": "n1", "said": "registered with 0 shards"}
            return [news] if event > query["after"] else []
        if path == "/v1/status":
            return {"nodes": nodes, "unplaced": unplaced, "fenced": ""}
        return {"ended": "", "result": "", "waiting": ["a: 1 of 2 ready", "b: 0 of 1 ready"]}

    def read(self, *_: object) -> tuple[ReplicaRow, ...]:
        self.looks += 1
        return tuple(self._now[2])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks without a pause between them, and nothing is waited for once nothing moves."""
    for name in ("POLL", "SAY_EVERY", "UNMOVED"):
        monkeypatch.setattr(following, name, 0.0)


READY = ReplicaRow("a/x", "a", "Ready", 1, 1, ("n0",))
NOWHERE = [
    ReplicaRow(name, name, "Pending", 0, 1, detail="fits on none of 1 node; n0: no card") for name in "ab"
]
FULL = ({"n0": "Ready", "n9": "Lost"}, ["a", "b"], [READY, *NOWHERE], 0)


@pytest.mark.usefixtures("impatient")
def test_what_fits_nowhere_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """All that can be done is done, and it is not what was asked for: which, why, and a code that is not 0."""
    assert follow(Standing(FULL), Followed(3, 0), 60.0) == Exit.FAILED  # type: ignore[arg-type]
    said = capsys.readouterr().err.splitlines()
    assert said[-4:] == [
        "cannot be placed, and nothing goes on that could make room:",
        "  a: 1 of 2 ready; fits on none of 1 node; n0: no card",
        "  b: 0 of 1 ready; fits on none of 1 node; n0: no card",
        "the rest of revision 3 is done; what fits later is placed then."
        " Why: llmgw why a   Undo: llmgw rollback",
    ]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "look",
    [
        ({}, ["a", "b"], NOWHERE, 0),
        ({"n0": "Ready", "n1": "Unheard"}, ["a", "b"], NOWHERE, 0),
        ({"n0": "Ready", "n1": "Unreachable"}, ["a", "b"], NOWHERE, 0),
        ({"n0": "Ready"}, ["a"], NOWHERE, 0),
        *(
            ({"n0": "Ready"}, ["a", "b"], [ReplicaRow("c/x", "c", state, 0, 1, ("n0",)), *NOWHERE], 0)
            for state in ("Pending", "Fetching", "Starting", "Draining", "Stopping", "Unreachable")
        ),
        ({"n0": "Ready"}, ["a", "b"], [ReplicaRow("a", "a", "Backoff", 0, 1), *NOWHERE], 0),
        ({"n0": "Ready"}, ["a", "b"], [READY], 0),
    ],
)
def test_what_may_find_a_place_is_waited_for(
    look: tuple[dict[str, str], list[str], list[ReplicaRow], int],
) -> None:
    """No node yet, a silent one, a start or a stop that goes on, a start that is tried again: it may make room."""
    client = Standing(look, look, look, FULL)
    assert follow(client, Followed(3, 0), 60.0) == Exit.FAILED  # type: ignore[arg-type]
    assert client.looks == 4


def test_a_timeout_says_how_far_it_is_and_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside what is outstanding: each replica that is on its way, or why it is not."""
    waits = ReplicaRow("a", "a", "Backoff", 0, 1, detail="try 3 in 7s; last: exit 1")
    client = Standing(({"n0": "Ready"}, [], [READY, waits], 0))
    assert follow(client, Followed(3, 0), -1.0) == Exit.TIMEOUT  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        "still outstanding; the work goes on:",
        "  a: 1 of 2 ready",
        "  b: 0 of 1 ready",
        "  ..    a  Backoff  -  try 3 in 7s; last: exit 1",
        "Follow: llmgw apply --attach 3   Undo: llmgw rollback",
    ]


def test_news_of_the_fleet_begins_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that registers while nothing moves may be the one."""
    monkeypatch.setattr(following, "POLL", 0.01)
    monkeypatch.setattr(following, "SAY_EVERY", 0.0)
    monkeypatch.setattr(following, "UNMOVED", 0.05)
    news = [(*FULL[:3], event) for event in range(20)]
    client = Standing(*news, FULL)
    assert follow(client, Followed(3, 0), 60.0) == Exit.FAILED  # type: ignore[arg-type]
    assert client.looks > 20


def test_an_apply_of_more_than_there_is_room_for_ends(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real control plane: two of three get their cards, then it is said what stays without one, and 1."""
    monkeypatch.setattr(following, "SAY_EVERY", 0.1)
    monkeypatch.setattr(following, "UNMOVED", 0.5)
    with Loopback(tmp_path, {"n0": 2}) as lab:
        root = lab.write(catalog("a", a="scaling: {min: 3, max: 3}\n"))
        ran = lab.cli("apply", str(root), "--yes")
        assert ran.code == Exit.FAILED, ran
        assert ran.err.count("rank 0 ready") == 2
        assert "  a: 2 of 3 ready; fits on none of 1 node; n0: " in ran.err
        attached = lab.cli("apply", "--attach")
        assert (attached.code, "a: 2 of 3 ready" in attached.err) == (Exit.FAILED, True)
        assert lab.cli("apply", str(root), "--yes", "--wait", "accepted").code == Exit.DONE
        assert lab.cli("apply", str(root), "--yes").code == Exit.FAILED


# --- saved plans ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """One node of four cards."""
    with Loopback(tmp_path_factory.mktemp("applying"), {"n0": 4}) as made:
        yield made


def test_a_saved_plan_is_what_is_applied(lab: Loopback) -> None:
    """Its own bytes, whatever the directory holds by then; an edited file is no plan; `show` reads it alone."""
    root = lab.write(catalog("a", a="aliases: [chat]\n"))
    path = lab.directory / "plan.json"
    assert lab.cli("plan", str(root), "--save", str(path)).code == Exit.DONE
    lab.write(catalog("b"))
    shown = lab.cli("show", str(path))
    assert "1 to add" in shown.out
    done = lab.cli("apply", "--plan", str(path), "-m", "as saved")
    assert done.code == Exit.DONE, done
    assert "revision 1 stands" in done.err
    assert "rank 0 ready" in done.err
    assert [row["model"] for row in lab.client.get("/v1/models")] == ["a"]
    document = json.loads(path.read_text())
    document["rows"][0]["model"] = "z"
    path.write_text(json.dumps(document))
    edited = lab.cli("apply", "--plan", str(path))
    assert edited.code == Exit.FAILED
    assert "it was edited" in edited.err


def test_history_reproduces_an_apply(lab: Loopback) -> None:
    """Who, what, every action, and the very bytes; written nowhere over a file that is there."""
    to = lab.directory / "again"
    shown = lab.cli("history", "show", "1", "--to", str(to))
    assert shown.code == Exit.DONE, shown
    assert "as saved" in shown.out
    assert "start rank 0 on n0" in shown.out
    written = {path.name: path.read_text() for path in to.rglob("*.yaml")}
    assert written == dict(catalog("a", a="aliases: [chat]\n"))
    assert lab.cli("history", "show", "1", "--to", str(to)).code == Exit.FAILED
    whole = json.loads(lab.cli("history", "show", "1", "-o", "json").out)
    assert whole["kind"] == "llmgw.revision"
    assert whole["revision"]["message"] == "as saved"
    assert json.loads(lab.cli("history", "-o", "json").out)["items"][0]["number"] == 1


def test_rollback_and_attach(lab: Loopback) -> None:
    """The bytes before, as a revision of its own; an apply that is over is told from its record."""
    root = lab.write(catalog("a", "b", a="aliases: [chat]\n"))
    assert lab.cli("apply", str(root), "--yes").code == Exit.DONE
    assert lab.cli("rollback").code == Exit.DECLINED
    done = lab.cli("rollback", "--yes")
    assert done.code == Exit.DONE, done
    (newest, *_) = lab.client.get("/v1/history")
    assert (newest["number"], newest["message"]) == (3, "rollback to revision 1")
    followed = lab.cli("apply", "--attach")
    assert followed.code == Exit.DONE
    assert "rank 0 gone" in followed.err
    over = lab.cli("apply", "--attach", "1")
    assert over.code == Exit.DONE
    assert "rank 0 ready" in over.err
    assert lab.cli("rollback", "3", "--yes").err.startswith("revision 3 stands already: nothing to apply")


def test_a_plan_that_supposes_is_saved_to_be_looked_at(lab: Loopback, tmp_path: pathlib.Path) -> None:
    """What is not so is not applied, from a file neither; a part of a plan is not saved at all."""
    root, path = lab.write(catalog("b")), tmp_path / "plan.json"
    node = tmp_path / "node.yaml"
    node.write_text((recorded.GOLDEN / "node.yaml").read_text())
    before = lab.client.get("/v1/status")["revision"]
    for option in (("--without-node", "n0"), ("--with-node", str(node)), ("--replace", "a")):
        made = lab.cli("plan", str(root), *option, "--save", str(path))
        assert made.code == Exit.DONE, made
        refused = lab.cli("apply", "--plan", str(path), "--allow-mass-stop", "1")
        assert (refused.code, "it supposes what is not so" in refused.err) == (Exit.FAILED, True)
    path.unlink()
    assert lab.cli("plan", str(root), "--only", "b", "--save", str(path)).code == Exit.USAGE
    assert not path.exists()
    assert lab.client.get("/v1/status")["revision"] == before


def test_a_plan_of_a_snapshot_or_of_a_merge_is_applied_as_it_was_saved(
    lab: Loopback, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against an export it is the plan of that fleet; of a merge its bytes are those of the merge, in no directory."""
    fleet, path = tmp_path / "fleet.json", tmp_path / "plan.json"
    exported = lab.cli("fleet", "export")
    fleet.write_text(exported.out)
    root = lab.write(catalog("a", "c", a="aliases: [chat]\n"))
    ran = llmgw(["plan", str(root), "--fleet", str(fleet), "--save", str(path)])
    assert ran == Exit.DONE
    assert lab.cli("apply", "--plan", str(path)).code == Exit.DONE
    assert [row["model"] for row in lab.client.get("/v1/models")] == ["a", "c"]

    repository = Repository(tmp_path / "repository")
    repository.commit(dict(catalog("a", "c", a="aliases: [chat]\n")), "what stands")
    repository.git("checkout", "--quiet", "-b", "mine")
    repository.commit({"d.yaml": catalog("d")["d.yaml"]}, "mine")
    repository.git("checkout", "--quiet", "main")
    repository.commit({"e.yaml": catalog("e")["e.yaml"]}, "theirs")
    repository.git("checkout", "--quiet", "mine")
    monkeypatch.chdir(repository.root)
    made = lab.cli("plan", "--base", "main", "--save", str(path))
    assert made.code == Exit.DONE, made
    done = lab.cli("apply", "--plan", str(path))
    assert done.code == Exit.DONE, done
    assert [row["model"] for row in lab.client.get("/v1/models")] == ["a", "c", "d", "e"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[]", "as a saved plan"),
        ('{"kind": "llmgw.plan"}', "as a saved plan"),
        ('{"kind": "llmgw.plan", "format_version": "2.0", "upload": {}}', "it is of format 2.0, not 1"),
        ('{"kind": "llmgw.plan", "format_version": "1.9", "upload": {}}', "as a saved plan: "),
    ],
)
def test_what_is_no_saved_plan(text: str, said: str, tmp_path: pathlib.Path) -> None:
    """A sentence each, and no traceback."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(Failed) as refused:
        load(path)
    assert said in refused.value.said
    with pytest.raises(Failed, match="No such file"):
        load(tmp_path / "none.json")


def test_a_saved_catalog_is_read_like_any_other(tmp_path: pathlib.Path) -> None:
    """An unknown key of a later minor is no matter; bytes that are no catalog are."""
    whole = files("qwen")
    made = upload_of({name: text.encode() for name, text in whole.items()}, commit="3f2a91c")
    path = tmp_path / "plan.json"
    empty = plan()
    save(path, dataclasses.replace(empty, digest=digest_of({}, "")), made)
    document = {**json.loads(path.read_text()), "later": 1}
    path.write_text(json.dumps(document))
    found = load(path)
    assert (dict(found.upload.files), found.upload.commit) == (whole, "3f2a91c")
    document["upload"]["files"]["qwen.yaml"] = "kind: model\n"
    path.write_text(json.dumps(document))
    with pytest.raises(CatalogInvalid):
        load(path)


def test_history_is_a_table_of_text_that_does_no_harm() -> None:
    """The one that stands has a star; control characters of a message are shown as such."""
    base = {"at": "2026-01-01T00:00:00", "commit": "", "plan": "ab" * 32, "actions": 2, "result": "done"}
    rows = [
        {**base, "number": 2, "who": "", "message": "\x1b[31mred\nsecond line", "stands": True},
        {**base, "number": 1, "who": "ada", "message": "", "stands": False, "result": ""},
    ]
    lines = history_lines(rows)
    assert lines[1].startswith("2*        2026-01-01T00:00:00Z  ?    -       p-ababab  2        done")
    assert "\x1b" not in lines[1]
    assert "second" not in lines[1]
    assert "not recorded" in lines[2]
    assert history_lines([]) == ["No revision yet: llmgw apply"]
