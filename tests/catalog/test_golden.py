"""Every code has a page: what was written, and word for word what a person reads about it."""

import pathlib
import re

import pytest

from llmgw.catalog import builder
from tests.catalog import golden

PAGES = sorted(golden.DIRECTORY.glob("*.txt"))
ROOM = pathlib.Path(builder.__file__).parent
# Bytes, files and numbers that a page cannot hold, and what only a model says: test_builder, test_read,
# test_references, test_model_checks.
ELSEWHERE = {"E108", "E109", "E307", "W520"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_problem_reads_as_it_did(page: pathlib.Path) -> None:
    """The text, the place, the carets and the help of each code are what was reviewed."""
    files, expected = golden.parts(page)

    assert golden.said(files) == expected
    assert f"[{page.stem}]" in expected


def test_every_code_has_a_page() -> None:
    """No problem can be reported that nobody has read as its reader will."""
    codes = {
        code for module in ROOM.glob("*.py") for code in re.findall(r'"([EW]\d{3})"', module.read_text())
    }

    assert codes - ELSEWHERE == {page.stem for page in PAGES}
