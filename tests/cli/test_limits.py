"""`[guards]` of llmgw.toml: read with its lines, refused where it cannot be meant."""

import pathlib

import pytest

from llmgw.cli.limits import read_limits
from llmgw.errors import Failed
from llmgw.planning.guards import Limits

WRITTEN = 'server = "a:1"\n\n[other]\nmass_stop = 1\n\n[guards]  # ours\n# mass_stop\nmass_stop = "12.5%"\nmass_stop_least = 5\n'


def test_limits_come_with_their_lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file beside the catalog, or above it, and not the one where the process happens to stand."""
    fleet, elsewhere = tmp_path / "fleet", tmp_path / "elsewhere"
    (fleet / "catalog").mkdir(parents=True)
    elsewhere.mkdir()
    (fleet / "llmgw.toml").write_text(WRITTEN)
    (elsewhere / "llmgw.toml").write_text('[guards]\nmass_stop = "90%"\n')
    monkeypatch.chdir(elsewhere)
    found = read_limits(fleet / "catalog")
    assert (found.share, found.least) == (0.125, 5)
    assert found.places == {
        "mass_stop": "../fleet/llmgw.toml:8",
        "mass_stop_least": "../fleet/llmgw.toml:9",
    }
    assert read_limits(None).share == 0.9
    assert read_limits(tmp_path / "nowhere").share == 0.9


def test_without_a_file_or_a_table_there_are_defaults(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 % and three."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llmgw.toml").write_text('server = "a:1"\n')
    assert read_limits(tmp_path) == Limits()
    assert (Limits().share, Limits().least) == (0.3, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mass_stop = 30", "no share of 100 %"),
        ('mass_stop = "101%"', "no share of 100 %"),
        ('mass_stop = "30"', "no share of 100 %"),
        ("mass_stop_least = 0", "no number of replicas"),
        ("mass_stop_least = true", "no number of replicas"),
        ("allow_mass_stop = 9", "no guard has such a limit"),
    ],
)
def test_what_cannot_be_meant_starts_nothing(
    line: str, said: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard that was switched off by a typing error would be none; an override is in no file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llmgw.toml").write_text(f"[guards]\n{line}\n")
    with pytest.raises(Failed, match=said) as refused:
        read_limits(None)
    assert "llmgw.toml:2" in refused.value.said


def test_a_table_that_is_none(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither TOML that cannot be read nor another kind of value is passed over."""
    monkeypatch.chdir(tmp_path)
    for text in ("guards = 3\n", "guards = [\n"):
        (tmp_path / "llmgw.toml").write_text(text)
        with pytest.raises(Failed, match=r"llmgw\.toml"):
            read_limits(None)
