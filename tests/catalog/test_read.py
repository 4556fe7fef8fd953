"""What counts as a catalog on disk, and what is never taken for an empty one."""

import os
import pathlib

import pytest

from llmgw.catalog import load
from llmgw.catalog.diagnostics import Invalid
from tests.catalog.samples import MODEL, PROFILE


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A catalog of one model and one profile, two levels deep."""
    root = tmp_path / "catalog"
    (root / "teams" / "x").mkdir(parents=True)
    (root / "teams" / "x" / "llama.yaml").write_text(MODEL)
    (root / "h100.yml").write_text(PROFILE)
    return root


def said(root: pathlib.Path) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load.read(root)
    assert {problem.code for problem in caught.value.diagnostics} == {"E109"}
    return [f"{problem.place.file}: {problem.said}" for problem in caught.value.diagnostics]


def test_yaml_files_are_read_wherever_they_lie(root: pathlib.Path) -> None:
    """Names are below the catalog; other files and names with a dot in front are nobody's business."""
    (root / "README.md").write_text("hello")
    (root / ".git").mkdir()
    (root / ".git" / "x.yaml").write_text("{")
    (root / ".#h100.yml").symlink_to("nowhere")

    assert list(load.read(root)) == ["h100.yml", "teams/x/llama.yaml"]


def test_a_catalog_is_loaded_from_its_directory(root: pathlib.Path) -> None:
    """Places name the file below the catalog and the line in it."""
    catalog = load.load(root)

    assert str(catalog.place("model/llama", "source")) == "teams/x/llama.yaml:3"


def test_a_pipe_is_no_file(root: pathlib.Path) -> None:
    """Reading a pipe would wait for ever."""
    os.mkfifo(root / "pipe.yaml")

    assert said(root) == ["pipe.yaml: this is no regular file"]


def test_a_link_may_not_lead_out(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A catalog shows its source lines, so it may not show another file's."""
    (tmp_path / "secret.yaml").write_text("password")
    (root / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    assert said(root) == ["link.yaml: this link leads out of the catalog"]


def test_a_link_inside_is_followed(root: pathlib.Path) -> None:
    """Deployments that swap one link show their files through links."""
    (root / "..data").mkdir()
    (root / "h100.yml").rename(root / "..data" / "h100.yml")
    (root / "h100.yml").symlink_to("..data/h100.yml")

    assert load.read(root)["h100.yml"] == PROFILE.encode()


def test_the_catalog_itself_may_be_a_link(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A deployed catalog is often a link that is swapped."""
    (tmp_path / "current").symlink_to(root)

    assert load.read(tmp_path / "current") == load.read(root)


def test_a_linked_directory_is_refused_not_skipped(root: pathlib.Path) -> None:
    """A catalog that silently shrinks would stop what is behind the link."""
    (root / "more").symlink_to("teams")
    (root / "ring").symlink_to(".")

    assert said(root) == [
        "more: a link to a directory is not followed",
        "ring: a link to a directory is not followed",
    ]


def test_a_file_that_vanished_is_an_error(root: pathlib.Path) -> None:
    """Between listing and reading a file may go: that is no catalog without it."""
    (root / "gone.yaml").symlink_to("was-here.yaml")

    assert said(root) == ["gone.yaml: cannot read this file: No such file or directory"]


def test_no_catalog_is_not_an_empty_one(root: pathlib.Path) -> None:
    """A path that is not there, or is a file, has no models to stop."""
    assert said(root / "absent") == [
        f"{root / 'absent'}: cannot list this directory: No such file or directory"
    ]
    assert said(root / "h100.yml") == [f"{root / 'h100.yml'}: cannot list this directory: Not a directory"]


def test_a_name_that_cannot_be_printed_is_refused(root: pathlib.Path) -> None:
    """Names go to terminals, logs and JSON."""
    (root / "a\x1b[31m.yaml").write_text(MODEL)
    (root / os.fsdecode(b"b\xff.yaml")).write_text(MODEL)

    assert said(root) == [
        "a�[31m.yaml: this file name cannot be printed",
        "b�.yaml: this file name cannot be printed",
    ]


def test_too_many_files_are_no_catalog(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointed at the wrong directory, it gives up before it has read the disk."""
    monkeypatch.setattr(load, "MAX_FILES", 1)

    assert "too much for a catalog" in said(root)[0]


def test_the_rest_is_checked_beside_what_cannot_be_read(root: pathlib.Path) -> None:
    """One unreadable file hides no other problem, and what may be in it is not called unknown."""
    os.mkfifo(root / "pipe.yaml")
    (root / "h100.yml").unlink()
    (root / "other.yaml").write_text("kind: modle\n")

    with pytest.raises(Invalid) as caught:
        load.load(root)

    assert sorted(problem.code for problem in caught.value.diagnostics) == ["E109", "E201", "W503"]
