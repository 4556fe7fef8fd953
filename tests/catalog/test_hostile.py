"""Files that mean harm are refused with a place; how fast, and beside a running fleet, is `lab yaml`."""

import os
import pathlib

import pytest

from llmgw.catalog.load import check, snapshot
from tests.catalog.samples import PROFILE
from tests.support.hostile import TEXTS, THINGS

SMALL = PROFILE.replace("h100-tp4", "small").encode()


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_bytes_are_refused_where_they_stand(name: str) -> None:
    """Whatever the bytes are, there is an error in their file, and few enough to read."""
    checked = check({"small.yaml": SMALL, "x.yaml": TEXTS[name]})

    assert checked.catalog is None
    assert any(item.severity == "error" and item.place.file == "x.yaml" for item in checked.diagnostics)


@pytest.mark.parametrize("name", [name for name in THINGS if os.geteuid() or "may not be" not in name])
def test_what_is_no_file_is_refused_where_it_lies(name: str, tmp_path: pathlib.Path) -> None:
    """Pipes, links and the rest are an error of the catalog: never opened, never skipped."""
    (tmp_path / "small.yaml").write_bytes(SMALL)
    THINGS[name](tmp_path / "x.yaml")

    files, unreadable = snapshot(tmp_path)
    checked = check(files, unreadable)

    assert checked.catalog is None
    assert any(item.severity == "error" for item in checked.diagnostics)


def test_the_corpus_is_large_enough() -> None:
    """What was promised: sixty and more."""
    assert len(TEXTS) + len(THINGS) >= 60
