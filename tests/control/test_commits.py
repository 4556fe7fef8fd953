"""The catalog as commits have it: real git repositories, read without touching them."""

import os
import pathlib

import pytest

from llmgw.control.commits import Commits
from llmgw.control.trees import Unreadable
from tests.control.repository import Repository


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    """One commit of two files."""
    made = Repository(tmp_path / "fleet")
    made.commit({"models/a.yaml": "a: 1\n", "b.yml": "b: 1\n", "notes.txt": "no catalog\n"}, "the first")
    return made


def read(source: Commits) -> dict[str, bytes]:
    """What the commit has now."""
    return dict(source.read(source.look()))


def test_a_commit_is_read_with_its_author(repository: Repository) -> None:
    """Names are those of the repository; who and what it was about come with it."""
    source = Commits(repository.catalog)
    tree = source.look()
    assert (tree.commit, tree.who, tree.message) == (
        repository.git("rev-parse", "HEAD")[:12],
        "Ada",
        "the first",
    )
    assert source.read(tree) == {"catalog/b.yml": b"b: 1\n", "catalog/models/a.yaml": b"a: 1\n"}


def test_what_is_not_committed_is_named_and_not_read(repository: Repository) -> None:
    """Edited, staged, new and deleted files: the commit stays what it is."""
    source = Commits(repository.catalog)
    before = source.look()
    repository.write({"models/a.yaml": "a: 2\n", "new.yaml": "n: 1\n"})
    (repository.catalog / "b.yml").unlink()
    after = source.look()
    assert (after.mark, source.read(after)) == (before.mark, source.read(before))
    assert sorted(source.dirty()) == ["catalog/b.yml", "catalog/models/a.yaml", "catalog/new.yaml"]


def test_reading_leaves_the_repository_as_it_is(repository: Repository) -> None:
    """No checkout, no lock, no refreshed index: not one file of the repository changes."""

    def state() -> list[tuple[str, int, int]]:
        found = [path.lstat() for path in sorted(repository.root.rglob("*"))]
        return [(str(item.st_ino), item.st_mtime_ns, item.st_size) for item in found]

    os.utime(repository.catalog / "b.yml", (1, 1))  # a stale index entry, which `git status` likes to refresh
    before = state()
    read(Commits(repository.catalog))
    assert state() == before


def test_an_unchanged_tree_keeps_its_mark(repository: Repository) -> None:
    """Another commit of the same files is the same tree; only changed blobs are fetched again."""
    source = Commits(repository.catalog)
    first = source.look()
    source.read(first)
    commit = repository.commit(message="nothing")
    again = source.look()
    assert (again.mark, again.commit) == (first.mark, commit)
    repository.commit({"b.yml": "b: 2\n"})
    kept = dict(source._last.blobs)
    assert read(source)["catalog/b.yml"] == b"b: 2\n"
    assert len(set(source._last.blobs) - set(kept)) == 1


def test_another_branch_can_be_followed(repository: Repository) -> None:
    """`--ref` reads a branch whatever is checked out."""
    repository.git("checkout", "--quiet", "-b", "next")
    repository.commit({"b.yml": "b: next\n"})
    repository.git("checkout", "--quiet", "main")
    assert read(Commits(repository.catalog, "next"))["catalog/b.yml"] == b"b: next\n"
    assert read(Commits(repository.catalog))["catalog/b.yml"] == b"b: 1\n"


@pytest.mark.parametrize("ref", ["gone", "--output=x", "HEAD~9", "refs/heads/"])
def test_a_missing_ref_is_no_catalog_at_all(repository: Repository, ref: str) -> None:
    """It is said, and never taken for an empty catalog."""
    with pytest.raises(Unreadable, match="cannot read"):
        Commits(repository.catalog, ref).look()


def test_a_commit_without_the_directory_is_unreadable(repository: Repository) -> None:
    """A branch on which the catalog was moved away removes nothing."""
    repository.git("mv", "catalog", "elsewhere")
    repository.git("commit", "--quiet", "--message", "moved")
    with pytest.raises(Unreadable, match="has no catalog/"):
        Commits(repository.catalog).look()


def test_a_deleted_work_tree_is_no_deleted_catalog(repository: Repository) -> None:
    """The commit has it, whatever `rm -r` did to the files."""
    source = Commits(repository.catalog)
    before = read(source)
    for path in sorted(repository.catalog.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    repository.catalog.rmdir()
    assert read(source) == before
    assert len(source.dirty()) == 2


def test_a_broken_repository_is_said_in_gits_words(repository: Repository) -> None:
    """A lost object, a missing HEAD, no repository at all: each unreadable, none of them empty."""
    source = Commits(repository.catalog)
    blob = repository.git("rev-parse", "HEAD:catalog/b.yml")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Unreadable, match=r"b\.yml of the commit: the repository has lost it"):
        read(source)
    head = repository.root / ".git" / "HEAD"
    head.write_text("nonsense\n")
    with pytest.raises(Unreadable, match="git cat-file: fatal"):
        source.look()
    (repository.root / ".git").rename(repository.root / "away")
    with pytest.raises(Unreadable, match="no git work tree"):
        source.look()
    assert source.spots() == frozenset()


def test_an_unborn_branch_is_unreadable(tmp_path: pathlib.Path) -> None:
    """A repository without a commit has no catalog yet, which is not an empty one."""
    with pytest.raises(Unreadable, match="there is no commit HEAD"):
        Commits(Repository(tmp_path / "new").catalog).look()


def test_what_is_no_plain_file_is_refused(repository: Repository) -> None:
    """A link in a commit leads nowhere; a file beyond the limit is not read at all."""
    (repository.catalog / "link.yaml").symlink_to("b.yml")
    repository.commit()
    with pytest.raises(Unreadable, match=r"catalog/link\.yaml of the commit: a link"):
        read(Commits(repository.catalog))
    (repository.catalog / "link.yaml").unlink()
    repository.commit({"big.yaml": "#" * (1 << 20) + "\n"})
    with pytest.raises(Unreadable, match=r"big\.yaml of the commit: it has 1\.0 MiB, 1 MiB are"):
        read(Commits(repository.catalog))


def test_hidden_files_are_left_out(repository: Repository) -> None:
    """As they are when files are followed."""
    repository.commit({".hidden/x.yaml": "x: 1\n", ".y.yaml": "y: 1\n", "Ü ß.yaml": "u: 1\n"})
    assert sorted(read(Commits(repository.catalog))) == [
        "catalog/b.yml",
        "catalog/models/a.yaml",
        "catalog/Ü ß.yaml",
    ]


def test_a_catalog_at_the_top_of_its_repository(tmp_path: pathlib.Path) -> None:
    """The work tree itself can be the catalog."""
    made = Repository(tmp_path / "fleet")
    made.commit({"a.yaml": "a: 1\n"})
    assert read(Commits(made.root)) == {"catalog/a.yaml": b"a: 1\n"}


def test_a_rebase_is_invisible(repository: Repository) -> None:
    """Stopped in its middle HEAD is somewhere else; the branch it began on is what is followed."""
    first = repository.git("rev-parse", "HEAD")
    mine = repository.commit({"b.yml": "b: mine\n"})
    repository.git("checkout", "--quiet", "-b", "theirs", first)
    repository.commit({"b.yml": "b: theirs\n"})
    repository.git("checkout", "--quiet", "main")
    repository.git("rebase", "theirs", check=False)
    source = Commits(repository.catalog)
    assert repository.git("rev-parse", "HEAD")[:12] != mine
    assert source.look().commit == mine
    repository.git("rebase", "--abort")
    assert source.look().commit == mine


def test_a_bisection_is_invisible(repository: Repository) -> None:
    """HEAD jumps through the past; the catalog does not."""
    for number in range(2, 6):
        newest = repository.commit({"b.yml": f"b: {number}\n"})
    repository.git("bisect", "start", "HEAD", "HEAD~4")
    assert repository.git("rev-parse", "HEAD")[:12] != newest
    assert Commits(repository.catalog).look().commit == newest


def test_a_linked_work_tree_is_followed_by_its_own_head(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    """`git worktree add`: .git is a file there, HEAD its own, the refs are shared."""
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "--quiet", "-b", "side", str(linked))
    source = Commits(linked / "catalog")
    assert read(source)["catalog/b.yml"] == b"b: 1\n"
    listened = {spot.path.resolve() for spot in source.spots()}
    git = repository.root.resolve() / ".git"
    assert {git, git / "refs", git / "worktrees" / "linked"} <= listened


def test_a_hooks_environment_leads_nowhere_else(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR of whoever started us is not our repository."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert len(read(Commits(repository.catalog))) == 2


def test_without_git_it_is_unreadable(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """No git, nothing known: what stands goes on standing."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unreadable, match="git cannot be run"):
        Commits(repository.catalog).look()
