"""Following a catalog, look by look: what is adopted, what is held, and what a restart still knows."""

import asyncio
import json
import pathlib
import shutil

import pytest

from llmgw.catalog import load
from llmgw.catalog.tree import Tree
from llmgw.control.commits import Commits
from llmgw.control.holding import Rules
from llmgw.control.serve import usual_watch
from llmgw.control.store import Store
from llmgw.control.trees import Directory
from llmgw.errors import Failed
from llmgw.kit.clock import SystemClock
from tests.control.following import PACE, Followed, write
from tests.control.plane import files
from tests.control.repository import Repository

AUTO = Rules("files", "auto")
BROKEN = files("qwen")["qwen.yaml"].replace("[small]", "[none]")


def by_files(tmp_path: pathlib.Path, rules: Rules = AUTO) -> Followed:
    """Following `tmp_path/catalog` by files; called again it is a restart."""
    return Followed(tmp_path / "state", Directory(tmp_path / "catalog", SystemClock()), rules)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A catalog of one model, on disk."""
    write(tmp_path / "catalog", files("qwen"))
    return tmp_path / "catalog"


@pytest.mark.usefixtures("root")
def test_what_has_settled_is_adopted(tmp_path: pathlib.Path) -> None:
    """One look is no proof; two equal ones are, and the adoption says by whom."""
    followed = by_files(tmp_path)
    asyncio.run(followed.watch.look())
    assert followed.number == 0
    followed.settles()
    assert (followed.number, followed.models) == (1, ["qwen"])
    assert followed.plane.adoption.standing is not None
    assert followed.plane.adoption.standing.who == "(watch)"
    followed.settles()
    assert followed.number == 1


def test_a_broken_catalog_is_held_with_its_places(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What stood goes on standing; status says file, line, since when, and what to run."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, {**files("qwen"), "qwen.yaml": BROKEN})
    followed.settles()
    followed.plane.clock.at += 240
    report = followed.watch.report()
    assert (followed.number, followed.models) == (1, ["qwen"])
    assert f"{root}/qwen.yaml:5:12: E301" in "".join(report["hold"]["details"])
    assert (report["hold"]["age"], report["hold"]["next"]) == (240, "llmgw validate catalog")
    assert any("held: " in entry.said for entry in followed.plane.journal.after(0))


def test_a_hold_survives_a_restart(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The next process stands on the last good revision and knows what is held, before its first look."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, {**files("qwen"), "qwen.yaml": BROKEN})
    followed.settles()
    again = by_files(tmp_path)
    assert (again.number, again.models) == (1, ["qwen"])
    assert again.hold == followed.hold
    again.settles()
    assert again.hold == followed.hold
    write(root, files("qwen", "phi"))
    again.settles()
    assert (again.why, again.models) == ("", ["phi", "qwen"])


def test_broken_from_the_beginning(tmp_path: pathlib.Path) -> None:
    """With nothing good ever seen nothing stands, and nothing is stopped; the first good one is taken."""
    write(tmp_path / "catalog", {"qwen.yaml": BROKEN})
    followed = by_files(tmp_path)
    followed.settles()
    assert (followed.number, followed.why) == (0, "invalid")
    assert followed.plane.adoption.catalog is None
    write(tmp_path / "catalog", files("qwen"))
    followed.settles()
    assert (followed.number, followed.why) == (1, "")


def test_removals_wait_for_a_person(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A file that is gone may be half of a move: its model stays until somebody applies."""
    write(root, files("qwen", "phi"))
    followed = by_files(tmp_path)
    followed.settles()
    write(root, files("qwen"))
    followed.settles()
    assert (followed.why, followed.models) == ("removal", ["phi", "qwen"])
    assert followed.hold is not None
    assert "model phi is removed" in followed.hold.details[0]
    followed.plane.call("POST", "/v1/apply", {"files": files("qwen")})
    assert (followed.why, followed.models) == ("", ["qwen"])
    followed.settles()
    assert followed.number == 2


def test_growing_needs_nobody(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """More replicas and new models are taken at once; fewer wait."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, files("qwen", replicas=3))
    followed.settles()
    assert (followed.number, followed.bound()) == (2, 3)
    write(root, files("qwen", replicas=1))
    followed.settles()
    assert (followed.why, followed.bound()) == ("removal", 3)


def test_what_comes_during_a_hold_is_seen_to_wait(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Not judged, not adopted, and not passed over in silence either."""
    followed = by_files(tmp_path)
    followed.settles()
    followed.plane.switch.hold("ada", "incident", None)
    followed.settles()
    assert followed.watch.report()["busy"] == ""
    write(root, files("qwen", replicas=2))
    followed.settles()
    assert followed.watch.report()["busy"].endswith(" is there, and is looked into once the hold is released")
    assert followed.number == 1
    followed.plane.switch.release("ada")
    followed.settles()
    assert (followed.number, followed.watch.report()["busy"]) == (2, "")


def test_a_vanished_catalog_is_no_empty_catalog(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Unmounted, moved, unreadable: held as unknown, and when it is back nothing has happened."""
    followed = by_files(tmp_path)
    followed.settles()
    root.rename(tmp_path / "away")
    followed.settles()
    assert (
        followed.watch.report()["blind"]["said"] == f"cannot read the catalog: there is no directory {root}"
    )
    assert (followed.number, followed.models) == (1, ["qwen"])
    restarted = by_files(tmp_path)
    assert restarted.watch.report()["blind"] is not None
    (tmp_path / "away").rename(root)
    restarted.settles()
    assert restarted.watch.report()["blind"] is None
    assert (restarted.number, restarted.why) == (1, "")


def test_a_catalog_that_is_not_there_yet_is_waited_for_aloud(tmp_path: pathlib.Path) -> None:
    """A start before the mount is no silence: status, journal and log say what is waited for; then it is taken."""
    followed = by_files(tmp_path)
    followed.settles()
    blind = followed.watch.report()["blind"]
    waits = "it is waited for: put the catalog there, or name another --catalog"
    assert (followed.number, blind["next"]) == (0, waits)
    (alarm,) = [entry for entry in followed.plane.journal.after(0) if entry.kind == "alarm"]
    where = f"there is no directory {tmp_path / 'catalog'}"
    assert alarm.said == f"cannot read the catalog: {where}; what stands goes on standing; {waits}"
    write(tmp_path / "catalog", files("qwen"))
    followed.settles()
    assert (followed.number, followed.watch.report()["blind"]) == (1, None)


def test_an_empty_directory_removes_nothing(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """`rm -r` inside it, or a mount that has not come up: every model would be removed, so it waits."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, {})
    followed.settles()
    assert (followed.why, followed.models) == ("guard", ["qwen"])


def test_an_unreadable_part_hides_the_whole(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What cannot be read is never taken for absent: a link that leads nowhere is enough."""
    followed = by_files(tmp_path)
    followed.settles()
    (root / "qwen.yaml").unlink()
    (root / "qwen.yaml").symlink_to(tmp_path / "unmounted.yaml")
    followed.settles()
    assert "qwen.yaml" in followed.watch.report()["blind"]["said"]
    assert (followed.why, followed.models) == ("", ["qwen"])


def test_a_commit_of_nothing_is_never_adopted(tmp_path: pathlib.Path) -> None:
    """An empty catalog waits for a person even where commits are followed, and before any node has spoken."""
    repository = Repository(tmp_path / "fleet")
    repository.commit(files("qwen"))
    followed = Followed(tmp_path / "state", Commits(repository.catalog), Rules("commits", "auto"))
    followed.settles()
    for name in files("qwen"):
        (repository.catalog / name).unlink()
    repository.commit({"README.md": "nothing"})
    followed.settles()
    assert (followed.why, followed.models) == ("guard", ["qwen"])
    assert followed.hold is not None
    assert followed.hold.said == "it would remove 1 model and leave nothing to ask"


def test_a_full_disk_changes_nothing_and_ends_nothing(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What cannot be kept did not happen: it is said, and tried again at the next look."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, {**files("qwen"), "qwen.yaml": BROKEN})
    kept = tmp_path / "state" / "followed.json"
    kept.unlink()
    kept.mkdir()
    followed.plane.clock.at += PACE.rescan
    asyncio.run(followed.watch._look_safely())
    followed.plane.clock.at += PACE.settle
    asyncio.run(followed.watch._look_safely())
    assert "cannot keep what became of it" in followed.plane.journal.after(0)[-1].said
    assert followed.why == ""
    kept.rmdir()
    asyncio.run(followed.watch._look_safely())
    assert followed.why == "invalid"


@pytest.mark.usefixtures("root")
def test_a_record_that_cannot_be_read_is_refused(tmp_path: pathlib.Path) -> None:
    """It may hold a rollback: starting without it would undo that, so a person decides."""
    by_files(tmp_path).settles()
    (tmp_path / "state" / "followed.json").write_text('{"mark": 3}')
    with pytest.raises(Failed, match=r"cannot read .*followed\.json"):
        by_files(tmp_path)


@pytest.mark.usefixtures("root")
def test_a_record_of_another_release_is_read_and_kept(tmp_path: pathlib.Path) -> None:
    """`left` was one digest once; a key that nobody here knows is written again."""
    by_files(tmp_path).settles()
    path = tmp_path / "state" / "followed.json"
    kept = json.loads(path.read_bytes())
    path.write_text(json.dumps({**kept, "left": "ab" * 32, "tomorrow": [1]}))
    store = Store(tmp_path / "state")
    assert store.followed().left == ("ab" * 32,)
    store.save_followed(store.followed())
    assert json.loads(path.read_bytes()) == {**kept, "left": ["ab" * 32], "tomorrow": [1]}
    path.write_text(json.dumps({**kept, "left": ""}))
    assert store.followed().left == ()


def test_manual_shows_and_waits(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Pending until `llmgw apply`; then nothing is pending, without another look."""
    followed = by_files(tmp_path, Rules("files", "manual"))
    followed.settles()
    assert (followed.number, followed.why) == (0, "pending")
    followed.plane.call("POST", "/v1/apply", {"files": files("qwen")})
    assert (followed.number, followed.why) == (1, "")
    write(root, files("qwen", "phi"))
    followed.settles()
    assert (followed.number, followed.why) == (1, "pending")


@pytest.mark.usefixtures("root")
def test_auto_takes_what_was_pending(tmp_path: pathlib.Path) -> None:
    """Another rule judges the same tree anew."""
    by_files(tmp_path, Rules("files", "manual")).settles()
    followed = by_files(tmp_path)
    assert followed.why == "pending"
    followed.settles()
    assert (followed.number, followed.why) == (1, "")


def test_a_rollback_stays_rolled_back(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a person's apply moved away from is not taken again: not at the next look, not after a restart."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, files("qwen", replicas=2))
    followed.settles()
    followed.plane.call("POST", "/v1/apply", {"files": files("qwen", replicas=1), "who": "ada"})
    assert (followed.why, followed.bound()) == ("left", 1)
    followed.settles()
    restarted = by_files(tmp_path)
    restarted.settles()
    assert (restarted.why, restarted.bound(), restarted.number) == ("left", 1, 3)
    assert restarted.hold is not None
    assert "revision 3 by ada" in restarted.hold.said
    write(root, files("qwen", replicas=3))
    restarted.settles()
    assert (restarted.why, restarted.bound()) == ("", 3)


def test_a_moved_file_is_no_change(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Identity is kind and name, meaning is the digest: no revision for a comment or a new place."""
    followed = by_files(tmp_path)
    followed.settles()
    (root / "team").mkdir()
    (root / "qwen.yaml").rename(root / "team" / "moved.yaml")
    (root / "small.yaml").write_text("# why\n" + files()["small.yaml"])
    followed.settles()
    assert (followed.number, followed.why) == (1, "")


def test_while_git_writes_we_wait(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An index.lock says that a checkout is under way; one that stays for ever does not stop us for ever."""
    lock = tmp_path / ".git" / "index.lock"
    lock.parent.mkdir()
    followed = by_files(tmp_path)
    followed.settles()
    lock.touch()
    write(root, files("qwen", "phi"))
    followed.settles()
    assert followed.models == ["qwen"]
    assert str(lock) in followed.watch.report()["busy"]
    followed.plane.clock.at += PACE.patience
    asyncio.run(followed.watch.look())
    assert followed.models == ["phi", "qwen"]


def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The document of every file that is made from its bytes from now on."""
    seen: list[str] = []
    build = load.build

    def counted(file: str, data: bytes) -> Tree:
        seen.append(pathlib.Path(file).name)
        return build(file, data)

    monkeypatch.setattr(load, "build", counted)
    return seen


def test_what_settles_is_read_meanwhile(
    root: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has settled only the verdict is left to do: each document was read in the look before."""
    followed, seen = by_files(tmp_path), readings(monkeypatch)
    for texts, read in (
        (files("qwen"), ["qwen.yaml", "small.yaml"]),
        (files("qwen", "phi"), ["phi.yaml"]),
    ):
        seen.clear()
        write(root, texts)
        before = followed.number
        asyncio.run(followed.watch.look())
        assert (sorted(seen), followed.number) == (read, before), "read, and nothing follows from it"
        followed.plane.clock.at += PACE.settle
        asyncio.run(followed.watch.look())
        assert (sorted(seen), followed.number) == (read, before + 1), "adopted, and nothing read for it"


def test_what_is_read_ahead_is_said_by_nobody(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A half that was finished before it settled was never held, however broken it was when it was read."""
    followed = by_files(tmp_path)
    followed.settles()
    journal = len(followed.plane.journal.after(0))
    write(root, {**files("qwen"), "qwen.yaml": BROKEN})
    asyncio.run(followed.watch.look())
    assert (followed.why, len(followed.plane.journal.after(0))) == ("", journal)
    write(root, files("qwen", "phi"))
    followed.settles()
    assert (followed.why, followed.models) == ("", ["phi", "qwen"])


def test_what_git_is_writing_is_not_read_ahead(
    root: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a checkout is under way every look would read files that the next one finds changed."""
    lock = tmp_path / ".git" / "index.lock"
    lock.parent.mkdir()
    followed = by_files(tmp_path)
    followed.settles()
    seen = readings(monkeypatch)
    lock.touch()
    write(root, files("qwen", "phi"))
    asyncio.run(followed.watch.look())
    assert seen == []
    lock.unlink()
    asyncio.run(followed.watch.look())
    assert seen == ["phi.yaml"]
    followed.plane.clock.at += PACE.settle
    asyncio.run(followed.watch.look())
    assert followed.models == ["phi", "qwen"]


def test_a_linked_work_tree_has_its_own_lock(tmp_path: pathlib.Path) -> None:
    """Where .git is a file, the lock is in the directory that it names."""
    repository = Repository(tmp_path / "fleet")
    repository.commit(files("qwen"))
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", "-b", "side", str(linked))
    source = Directory(linked / "catalog", SystemClock())
    assert source.look().locked == ""
    (repository.root / ".git" / "worktrees" / "linked" / "index.lock").touch()
    assert "worktrees/linked/index.lock" in source.look().locked


def test_commits_not_files_are_followed(tmp_path: pathlib.Path) -> None:
    """A dirty work tree is reported; the commit is what is adopted, with its author."""
    repository = Repository(tmp_path / "fleet")
    commit = repository.commit(files("qwen"), "serve qwen")
    repository.write({"qwen.yaml": BROKEN})
    followed = Followed(tmp_path / "state", Commits(repository.catalog), Rules("commits", "auto"))
    followed.settles()
    standing = followed.plane.adoption.standing
    assert standing is not None
    assert (standing.commit, standing.who, standing.message) == (commit, "Ada (watch)", "serve qwen")
    report = followed.watch.report()
    assert (report["dirty"], report["hold"], report["tree"]) == (["catalog/qwen.yaml"], None, commit)
    removal = repository.commit({**files("phi"), "qwen.yaml": files("phi")["phi.yaml"].replace("phi", "pi")})
    followed.settles()
    assert (followed.models, followed.watch.report()["tree"]) == (["phi", "pi"], removal)


def test_a_commit_on_top_of_the_last_is_taken_at_once(tmp_path: pathlib.Path) -> None:
    """Nobody writes at it any more. One that goes back, or aside, may be a step of something longer: it settles."""
    repository = Repository(tmp_path / "fleet")
    first = repository.commit(files("qwen"))
    followed = Followed(tmp_path / "state", Commits(repository.catalog), Rules("commits", "auto"))
    followed.settles()
    repository.commit(files("qwen", replicas=2))
    asyncio.run(followed.watch.look())
    assert followed.bound() == 2
    repository.git("reset", "--quiet", "--soft", first)
    asyncio.run(followed.watch.look())
    assert followed.watch.report()["dirty"] == ["catalog/qwen.yaml"], "it was seen"
    repository.commit(message="the same again, squashed")
    followed.settles()
    assert (followed.bound(), followed.number) == (2, 2)


def test_a_ref_that_is_gone_changes_nothing(tmp_path: pathlib.Path) -> None:
    """A deleted branch is held as unknown; when it is back, so is everything."""
    repository = Repository(tmp_path / "fleet")
    repository.commit(files("qwen"))
    repository.git("branch", "live")
    followed = Followed(tmp_path / "state", Commits(repository.catalog, "live"), Rules("commits", "auto"))
    followed.settles()
    repository.git("branch", "--quiet", "-D", "live")
    followed.settles()
    assert "there is no commit live" in followed.watch.report()["blind"]["said"]
    assert (followed.number, followed.models) == (1, ["qwen"])
    repository.git("branch", "live")
    followed.settles()
    assert (followed.watch.report()["blind"], followed.number) == (None, 1)


def test_the_usual_way_needs_no_git_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git on PATH a work tree is still a work tree: its dirty files are not followed by mistake."""
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "fleet" / ".git").mkdir(parents=True)
    assert usual_watch(tmp_path / "fleet" / "catalog") == "commits"
    assert usual_watch(tmp_path / "elsewhere") == "files"


def test_a_revision_is_kept_before_its_judgement(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Killed between the two, the next process finds the same tree standing and adopts nothing twice."""
    followed = by_files(tmp_path)
    followed.settles()
    write(root, files("qwen", "phi"))
    judged = (tmp_path / "state" / "followed.json").read_bytes()
    followed.settles()
    (tmp_path / "state" / "followed.json").write_bytes(judged)
    restarted = by_files(tmp_path)
    restarted.settles()
    assert (restarted.number, restarted.models, restarted.why) == (2, ["phi", "qwen"], "")


def test_a_copy_in_its_place_is_the_same_catalog(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Moved away and copied back: other inodes, the same bytes, no change."""
    followed = by_files(tmp_path)
    followed.settles()
    root.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", root)
    followed.settles()
    assert (followed.number, followed.why, followed.watch.report()["blind"]) == (1, "", None)
