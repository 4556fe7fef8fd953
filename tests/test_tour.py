"""The tour as a test: the installed package, real processes, real engines, from `validate` to the last pid."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.timeout(300)
def test_the_tour_holds() -> None:
    """Every step of the story takes effect, and nobody's request fails where none may."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lab", "tour"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr[-8000:]
    outcome = json.loads(ran.stdout.splitlines()[-1])
    assert outcome["pass"] is True
    assert outcome["figures"]["requests_while_rolling"] > 0
