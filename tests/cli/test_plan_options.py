"""What `llmgw plan` reads, supposes, writes and exits with, over a control plane whose day stands still."""

import json
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from llmgw.cli import main
from llmgw.cli.exits import Exit
from llmgw.cli.uploads import read_upload
from llmgw.planning.markdown import read_header
from tests.control.repository import Repository
from tests.support import recorded
from tests.support.desk import Desk, desk


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The recorded fleet, answering."""
    with desk(tmp_path_factory.mktemp("desk")).open() as found:
        yield found


@pytest.fixture
def repository(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, standing: Desk) -> Repository:
    """A repository whose main has the standing catalog; commands run in it."""
    found = Repository(tmp_path / "fleet")
    found.commit(recorded.STANDING, "what stands")
    monkeypatch.chdir(found.root)
    monkeypatch.setenv("LLMGW_SERVER", standing.address)
    return found


def plans(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `llmgw plan`."""
    capsys.readouterr()
    code = main.run(["plan", *options])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_the_header_says_what_was_read(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    """Clean, dirty with git's own letters, of a ref, and where there is no git at all."""
    head = repository.git("rev-parse", "--short=7", "HEAD")
    assert f"catalog {head} (HEAD, clean)" in plans(capsys)[1]
    repository.write({"models/phi-4.yaml": recorded.STANDING["models/phi-4.yaml"] + "aliases: [phi]\n"})
    repository.write({"models/new.yaml": recorded.model("new", recorded.QWEN, "one-h100")})
    header = plans(capsys)[1].splitlines()[0]
    assert f"{head} (HEAD) + 2 uncommitted: M catalog/models/phi-4.yaml, ?? catalog/models/new.yaml" in header
    assert f"catalog {head} (main)" in plans(capsys, "--ref", "main")[1]
    (repository.root / ".git").rename(repository.root / "no-git")
    assert "(in no git repository)" in plans(capsys)[1]


def test_a_repository_of_another_user_is_told_with_what_git_asks_for(
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a job's container git reads none: that is no missing repository and no missing commit."""
    git = shutil.which("git")
    wrapper = repository.root / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {git} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    help_ = f"git config --global --add safe.directory {repository.root}"
    assert f"(commit unknown: git reads no repository of another user ({help_}))" in plans(capsys)[1]
    code, _, err = plans(capsys, "--ref", "main")
    assert (code, help_ in err) == (Exit.FAILED, True)


@pytest.mark.parametrize(
    ("how", "said"),
    [("ignored", "(not in git)"), ("untracked", "(not in git)"), ("empty", "(no commit yet)")],
)
def test_what_no_commit_has_is_never_called_clean(
    repository: Repository, capsys: pytest.CaptureFixture[str], how: str, said: str
) -> None:
    """A catalog that git ignores, does not know or has never committed bears no commit's name."""
    where = repository.root / "other"
    shutil.copytree(repository.root / "catalog", where)
    if how == "ignored":
        (repository.root / ".git" / "info").mkdir(exist_ok=True)
        (repository.root / ".git" / "info" / "exclude").write_text("other/\n")
    if how == "empty":
        shutil.rmtree(repository.root / ".git")
        repository.git("init", "--quiet")
    assert said in plans(capsys, "other")[1].splitlines()[0]
    code, _, err = plans(capsys, "other", "--fail-on", "dirty")
    assert (code, err) == (Exit.FAIL_ON, "fails on: dirty\n")
    assert read_upload(where, "plan").commit == ""


def test_a_file_that_git_ignores_is_not_clean(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a part of the catalog that is read, and of no commit."""
    (repository.root / ".git" / "info").mkdir(exist_ok=True)
    (repository.root / ".git" / "info" / "exclude").write_text("new.*\n")
    repository.write({"models/new.yaml": recorded.model("new", recorded.QWEN, "one-h100"), "new.txt": "x"})
    assert "(HEAD) + 1 uncommitted: !! catalog/models/new.yaml" in plans(capsys)[1].splitlines()[0]


def test_a_ref_is_read_from_git_and_not_from_the_directory(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies in the work tree is broken; the commit is not."""
    repository.write({"models/phi-4.yaml": "kind: model\nname: [\n"})
    assert plans(capsys)[0] == Exit.INVALID
    code, out, _ = plans(capsys, "--ref", "HEAD")
    assert code == Exit.DONE
    assert "uncommitted" not in out
    code, _, err = plans(capsys, "--ref", "nowhere")
    assert code == Exit.FAILED
    assert "there is no commit nowhere here" in err


def test_the_merge_into_the_base_is_planned(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stale branch shows no revert of what main got meanwhile; that is pending, the branch's own is the change."""
    repository.git("checkout", "--quiet", "-b", "mine")
    repository.commit({"models/qwen3.yaml": recorded.model("qwen3", recorded.QWEN, "l40s-tp4")}, "qwen")
    repository.git("checkout", "--quiet", "main")
    phi = recorded.STANDING["models/phi-4.yaml"] + "aliases: [phi]\n"
    repository.commit({"models/phi-4.yaml": phi}, "an alias on main")
    repository.git("checkout", "--quiet", "mine")
    assert "uncommitted" not in plans(capsys)[1]
    code, out, _ = plans(capsys, "--base", "main", "-o", "json")
    assert code == Exit.DONE
    rows = {(row["model"], row["origin"], row["symbol"]) for row in json.loads(out)["rows"]}
    assert rows == {("qwen3", "change", "+"), ("phi-4", "pending", "~")}
    assert "merged into" in json.loads(out)["catalog"]


@pytest.mark.parametrize("base", ["main", "nowhere"])
def test_what_cannot_be_merged_has_no_plan(
    base: str, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """A conflict names the file, an unknown base itself: exit 3, and no guess."""
    name = "models/phi-4.yaml"
    repository.git("checkout", "--quiet", "-b", "mine")
    repository.commit({name: recorded.STANDING[name] + "aliases: [mine]\n"}, "mine")
    repository.git("checkout", "--quiet", "main")
    repository.commit({name: recorded.STANDING[name] + "aliases: [theirs]\n"}, "theirs")
    repository.git("checkout", "--quiet", "mine")
    code, out, err = plans(capsys, "--base", base)
    assert (code, out) == (Exit.INVALID, "")
    said = "1 file in conflict: catalog/models/phi-4.yaml" if base == "main" else "there is no commit nowhere"
    assert said in err


def test_authors_are_told_of_lines_that_are_in_git(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--explain` says who wrote the line that causes it, and nothing of a line that nobody committed."""
    repository.commit(
        {"models/qwen3.yaml": recorded.model("qwen3", recorded.QWEN, "l40s-tp4")}, "longer context"
    )
    out = plans(capsys, "--explain", "--only", "qwen3")[1]
    assert "by        Ada, " in out
    assert 'ago: "longer context"' in out
    repository.write({"models/qwen4.yaml": recorded.model("qwen4", recorded.QWEN, "l40s-tp4")})
    assert "by        " not in plans(capsys, "--explain", "--only", "qwen4")[1]


def test_several_places_get_it_at_once(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    """One rehearsal, written as text, JSON and Markdown; they are one plan."""
    (repository.root / "out").mkdir()
    also = [f"{form}:out/plan.{form}" for form in ("text", "json", "markdown")]
    code, out, _ = plans(capsys, *(word for each in also for word in ("--also", each)))
    assert code == Exit.DONE
    document = json.loads((repository.root / "out" / "plan.json").read_text())
    header = read_header((repository.root / "out" / "plan.markdown").read_text())
    assert header is not None
    assert header.digest == document["digest"]
    assert document["kind"] == "llmgw.plan"
    assert document["summary"]["unplaced"] == 1
    assert out == (repository.root / "out" / "plan.text").read_text()
    assert plans(capsys, "--also", "yaml:x")[0] == Exit.USAGE


def test_a_script_is_told_what_it_asked_for(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """0, 2 with --detailed-exitcode, 7 where --fail-on holds, and a word that nobody knows is usage."""
    repository.git("rm", "--quiet", "catalog/models/mistral-7b.yaml")
    repository.git("commit", "--quiet", "--message", "gone")
    assert plans(capsys)[0] == Exit.DONE
    assert plans(capsys, "--detailed-exitcode")[0] == Exit.CHANGES
    assert plans(capsys, "--detailed-exitcode", "--fail-on", "stop")[0] == Exit.FAIL_ON
    assert plans(capsys, "--fail-on", "outage,unplaced")[0] == Exit.FAIL_ON
    assert plans(capsys, "--fail-on", "dirty")[0] == Exit.DONE
    (repository.root / "catalog" / "x.yaml").write_text(recorded.model("x", recorded.QWEN, "one-h100"))
    code, _, err = plans(capsys, "--fail-on", "dirty", "--fail-on", "unplaced")
    assert code == Exit.FAIL_ON
    assert "fails on: dirty, unplaced" in err
    assert plans(capsys, "--fail-on", "everything")[0] == Exit.USAGE
    (away,) = json.loads(plans(capsys, "-o", "json")[1])["unreachable"]
    assert plans(capsys, "--fail-on", "unreachable")[0] == Exit.FAIL_ON
    assert plans(capsys, "--fail-on", "unreachable", "--without-node", away)[0] == Exit.DONE


def test_a_snapshot_gives_the_plan_of_the_control_plane(
    repository: Repository,
    standing: Desk,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exported, redacted or not, it is the same plan; no control plane is asked for it."""
    repository.commit({"models/qwen3.yaml": recorded.model("qwen3", recorded.QWEN, "l40s-tp4")}, "qwen")
    whole = json.loads(plans(capsys, "-o", "json")[1])
    assert main.run(["fleet", "export", "-f", "fleet.json"]) == Exit.DONE
    assert main.run(["fleet", "export", "--redact", "-f", "hidden.json"]) == Exit.DONE
    monkeypatch.setenv("LLMGW_SERVER", "127.0.0.1:9")
    asked = len(standing.asked)
    for name in ("fleet.json", "hidden.json"):
        code, out, _ = plans(capsys, "--fleet", name, "-o", "json")
        assert code == Exit.DONE
        found = json.loads(out)
        assert found["digest"] == whole["digest"]
        for part in ("guards", "service"):
            assert found[part] == whole[part]
        if name == "fleet.json":
            assert [row["nodes"] for row in found["rows"]] == [row["nodes"] for row in whole["rows"]]
            assert [row["memory"] for row in found["rows"]] == [row["memory"] for row in whole["rows"]]
    assert len(standing.asked) == asked
    assert plans(capsys, "--fleet", "nothing.json")[0] == Exit.FAILED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: big\ngpu: 8\n", "gpu: extra inputs are not permitted"),
        ("gpus: []\n", "name: field required"),
        ("name: big\ngpus: [{type: H100, memory: 80 apples}]\n", "cannot read '80 apples' as a size"),
        ("name: [\n", "it is no YAML"),
        ("- a\n", "the file"),
        ("name: gpu-a1\n", "there is one of this name"),
    ],
)
def test_a_node_file_says_what_is_wrong_with_it(
    text: str, said: str, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is named, and nothing is planned."""
    (repository.root / "node.yaml").write_text(text)
    code, out, err = plans(capsys, "--with-node", "node.yaml")
    assert (code, out) == (Exit.FAILED, "")
    assert said in err


def test_a_plan_that_only_supposes_is_not_offered_for_an_apply(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint to apply is for plans of what is."""
    repository.commit({"models/qwen3.yaml": recorded.model("qwen3", recorded.QWEN, "l40s-tp4")}, "qwen")
    assert "Next: llmgw apply" in plans(capsys)[2]
    for options in (["--without-node", "gpu-a2"], ["--only", "qwen3"], ["--replace", "llama-70b"]):
        assert "Next:" not in plans(capsys, *options)[2]
