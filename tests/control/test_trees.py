"""A directory that is looked at again and again: what is read again, and what need not be."""

import os
import pathlib

import pytest

from llmgw.control import trees
from llmgw.control.trees import Directory, Spot, stamped
from llmgw.kit.clock import SystemClock
from tests.control.following import write
from tests.control.plane import Clock, files


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A catalog that was written long before the looks of `Later`."""
    write(tmp_path / "catalog", files("qwen"))
    return tmp_path / "catalog"


class Later(Clock):
    """A minute after the files were written, and then as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.at = SystemClock().wall().timestamp() - Clock.wall(self).timestamp() + self.at + 60


def readings(monkeypatch: pytest.MonkeyPatch) -> list[pathlib.Path]:
    """Every full reading from now on."""
    seen: list[pathlib.Path] = []
    whole = trees.snapshot

    def counted(path: pathlib.Path, *, prefix: str = "") -> object:
        seen.append(path)
        return whole(path, prefix=prefix)

    monkeypatch.setattr(trees, "snapshot", counted)
    return seen


def test_a_settling_tree_is_read_once(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged stamps stand for unchanged bytes while a tree settles; the slow timer reads all the same."""
    clock, seen = Later(), readings(monkeypatch)
    source = Directory(root, clock)
    first = source.look()
    clock.at += 0.75
    assert source.look() == first
    assert len(seen) == 1
    clock.at += 8
    assert source.look() == first
    assert len(seen) == 2


def test_nobody_waits_for_the_reading_of_everything(
    root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody is at work it is put off, but never beyond twice its time."""
    clock, seen = Later(), readings(monkeypatch)
    source = Directory(root, clock)
    source.look()
    wholly: list[int] = []
    for second in range(1, 20):
        clock.at += 1
        (root / "qwen.yaml").write_text(f"# {second}\n")
        source.look()
        wholly += [second] * (len(seen) - 1 - len(wholly))
    assert wholly == [16]
    clock.at += 5
    source.look()
    clock.at += 5
    source.look()
    assert len(seen) == 3, "left alone, it is read when its time has come"


def test_a_clock_that_went_back_proves_nothing(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a reading that is still to come nobody can tell how old it is."""
    clock, seen = Later(), readings(monkeypatch)
    source = Directory(root, clock)
    source.look()
    clock.at -= 30
    source.look()
    assert len(seen) == 2


def test_what_was_just_written_and_is_gone_is_gone(root: pathlib.Path) -> None:
    """A file whose stamp told nothing yet is missed when it is removed."""
    clock = Later()
    source = Directory(root, clock)
    first = source.look()
    clock.at -= 60
    (root / "more.yaml").write_text("# new\n")
    assert source.look() != first
    (root / "more.yaml").unlink()
    clock.at += 1
    assert source.look() == first


def singles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every reading of one file by itself from now on."""
    seen: list[str] = []
    one = trees.file_bytes

    def counted(name: str) -> bytes | str:
        seen.append(pathlib.Path(name).name)
        return one(name)

    monkeypatch.setattr(trees, "file_bytes", counted)
    return seen


def test_what_was_just_written_is_read_again(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one tick of its clock a file can change and keep its stamp: then stamps prove nothing."""
    clock, seen = Later(), singles(monkeypatch)
    clock.at -= 61
    source = Directory(root, clock)
    source.look()
    source.look()
    assert seen == ["qwen.yaml", "small.yaml"]


def test_an_edit_costs_the_file_that_was_edited(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed, added, removed: only what has another stamp is read, and the mark is that of everything."""
    write(root, files("qwen", "phi"))
    clock, whole, single = Later(), readings(monkeypatch), singles(monkeypatch)
    source = Directory(root, clock)
    source.look()
    for texts, read in (
        (files("qwen", "phi", replicas=2), ["phi.yaml", "qwen.yaml"]),
        ({**files("qwen", "phi", replicas=2), "a.yaml": "# new\n"}, ["a.yaml"]),
        (files("qwen", replicas=2), []),
    ):
        single.clear()
        for name, text in texts.items():
            if not (root / name).exists() or (root / name).read_text() != text:
                (root / name).write_text(text)
        for path in [path for path in root.iterdir() if path.name not in texts]:
            path.unlink()
        tree = source.look()
        assert (sorted(single), len(whole)) == (read, 1)
        assert source.read(tree) == {f"{root}/{name}": text.encode() for name, text in sorted(texts.items())}
        assert tree == Directory(root, SystemClock()).look()
        whole.pop()


def test_what_cannot_be_read_by_itself_is_for_the_whole_to_say(
    root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that cannot be printed is refused as it is at the first look."""
    source = Directory(root, Later())
    source.look()
    (root / "a\x07.yaml").touch()
    with pytest.raises(trees.Unreadable, match="this file name cannot be printed"):
        source.look()


@pytest.mark.parametrize("change", ["in place", "renamed over", "removed", "added", "touched back"])
def test_every_change_shows_in_the_stamps(root: pathlib.Path, change: str) -> None:
    """Also one that keeps the size and sets the old mtime: the ctime is nobody's to set."""
    path, before = root / "qwen.yaml", stamped(root)
    data, times = path.read_bytes(), path.stat()
    match change:
        case "in place":
            path.write_bytes(data.replace(b"qwen", b"qwem"))
        case "renamed over":
            (root / ".new").write_bytes(data)
            (root / ".new").replace(path)
        case "removed":
            path.unlink()
        case "added":
            (root / "more.yml").write_bytes(data)
        case "touched back":
            path.write_bytes(data.replace(b"qwen", b"qwem"))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamped(root) != before


def test_links_have_no_stamps(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a link leads to changes without it, so everything is read; a directory that is gone has none either."""
    (root / "link.yaml").symlink_to("qwen.yaml")
    assert stamped(root) is None
    assert stamped(tmp_path / "gone") is None


def test_only_the_last_look_can_be_read(root: pathlib.Path) -> None:
    """A tree is read as it was seen, or not at all."""
    source = Directory(root, SystemClock())
    first = source.look()
    assert sorted(source.read(first)) == [f"{root}/qwen.yaml", f"{root}/small.yaml"]
    write(root, files("phi"))
    source.look()
    with pytest.raises(ValueError, match="last look"):
        source.read(first)


def test_what_matters_at_a_spot(tmp_path: pathlib.Path) -> None:
    """Below a tree everything but dot files; beside a link only the link."""
    tree = Spot(tmp_path, (1, 2))
    assert tree.matters(str(tmp_path / "models" / "a.yaml"))
    assert not tree.matters(str(tmp_path / ".git" / "index"))
    assert not tree.matters(str(tmp_path / "models" / ".a.yaml.swp"))
    beside = Spot(tmp_path, (1, 2), frozenset({"current"}))
    assert beside.matters(str(tmp_path / "current"))
    assert not beside.matters(str(tmp_path / "other"))


def test_a_hidden_ancestor_hides_nothing() -> None:
    """A catalog below ~/.config is a catalog."""
    hidden = Spot(pathlib.Path("/srv/.config/catalog"), (1, 2))
    assert hidden.matters("/srv/.config/catalog/a.yaml")
