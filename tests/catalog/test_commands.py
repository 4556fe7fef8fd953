"""`llmgw validate` and `llmgw schema`, as a person or a CI job runs them."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from llmgw.catalog import schema as catalog_schema
from llmgw.catalog.diagnostics import Invalid
from llmgw.cli import schema, validate
from llmgw.cli.places import ELSEWHERE
from llmgw.errors import CatalogInvalid, Failed
from tests.catalog.samples import MODEL, PROFILE

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory with a valid catalog in it."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "m.yaml").write_text(MODEL)
    (tmp_path / "catalog" / "p.yaml").write_text(PROFILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "catalog"


def test_a_valid_catalog_is_counted(here: pathlib.Path) -> None:
    """One line says that all is well, and what was seen."""
    result = CliRunner().invoke(validate.command, [])

    assert (result.exit_code, result.output) == (0, "catalog is valid: 1 model, 1 profile\n")


def test_a_warning_is_shown_and_valid(here: pathlib.Path) -> None:
    """Warnings fail nothing."""
    (here / "empty.yaml").touch()

    result = CliRunner().invoke(validate.command, ["-o", "concise"])

    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "catalog/empty.yaml:1:1: W501 the file is empty (remove it, or write a document)",
        "catalog is valid: 1 model, 1 profile",
    ]


@pytest.mark.parametrize("output", validate.OUTPUTS)
def test_an_invalid_catalog_is_refused_with_places(here: pathlib.Path, output: str) -> None:
    """Every format names the file so that it opens from here; the exception decides the exit code."""
    (here / "m.yaml").write_text(MODEL + "replicas: 3\n")

    result = CliRunner().invoke(validate.command, ["-o", output, "catalog"])

    assert isinstance(result.exception, Invalid)
    assert "E203" in result.output
    assert "catalog/m.yaml" in result.output
    if output == "json":
        assert json.loads(result.output)["error_count"] == 1


def test_strict_accepts_no_warning(here: pathlib.Path) -> None:
    """`--strict` makes a warning a refusal; without problems it changes nothing."""
    assert CliRunner().invoke(validate.command, ["--strict"]).exit_code == 0

    (here / "empty.yaml").touch()
    result = CliRunner().invoke(validate.command, ["--strict"])

    assert isinstance(result.exception, CatalogInvalid)
    assert "1 warning in 1 file, and --strict accepts none" in str(result.exception)
    assert "W501" in result.output


@pytest.mark.parametrize("part", ["catalog/m.yaml", "catalog/deep", "catalog/deep/n.yaml"])
def test_a_part_is_checked_against_the_whole(here: pathlib.Path, part: str) -> None:
    """One file or directory may refer to the rest of its catalog; what is wrong elsewhere is only counted."""
    (here / "deep").mkdir()
    (here / "deep" / "n.yaml").write_text(MODEL.replace("name: llama", "name: other"))
    (here / "wrong.yaml").write_text("kind: mdoel\n")

    result = CliRunner().invoke(validate.command, [part])

    assert (result.exit_code, result.output) == (0, f"{part} is valid; 1 problem elsewhere in catalog\n")


def test_a_problem_with_a_neighbour_concerns_both(here: pathlib.Path) -> None:
    """Two documents of one name: whichever file is asked about, it is said."""
    (here / "n.yaml").write_text(MODEL)

    for part in ("catalog/m.yaml", "catalog/n.yaml"):
        assert "E303" in CliRunner().invoke(validate.command, [part]).output


def test_from_inside_the_catalog_it_is_found(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the catalog directory, a bare file name is a part of it."""
    monkeypatch.chdir(here)

    assert CliRunner().invoke(validate.command, ["m.yaml"]).output == "m.yaml is valid\n"


def test_a_catalog_of_another_name_is_named(here: pathlib.Path) -> None:
    """`--catalog` says what a part belongs to where no directory is called catalog."""
    here.rename(here.parent / "models")
    alone = CliRunner().invoke(validate.command, ["models/m.yaml", "--catalog", "models"])

    assert alone.output == "models/m.yaml is valid\n"


def test_a_part_that_is_no_part_is_not_valid(here: pathlib.Path) -> None:
    """A slip in a path is no green run."""
    (here / "notes.txt").write_text("x")

    result = CliRunner().invoke(validate.command, ["catalog/notes.txt"])

    assert isinstance(result.exception, CatalogInvalid)
    assert (
        str(result.exception)
        == "cannot check catalog/notes.txt: no YAML file of the catalog catalog is there"
    )


@pytest.mark.parametrize(
    ("words", "named", "help_"),
    [
        ("elsewhere", "elsewhere", ELSEWHERE),
        ("catalgo", "catalgo", "did you mean `catalog`?"),
        ("catalog/m.ymal", "catalog/m.ymal", "did you mean `m.yaml`?"),
        ("catalog/m.yaml --catalog elsewhere", "elsewhere", ELSEWHERE),
    ],
)
def test_what_is_not_there_is_no_invalid_catalog(
    here: pathlib.Path, words: str, named: str, help_: str
) -> None:
    """A wrong path is not a valid empty catalog, and says nothing about one: the name and where it was looked for."""
    result = CliRunner().invoke(validate.command, [*words.split(), "-o", "json"])

    assert isinstance(result.exception, Failed)
    assert str(result.exception.said).startswith(f"cannot check {named}: there is no ")
    assert str(result.exception.said).endswith(f"directory {here.parent / named}")
    assert result.exception.help == help_
    assert result.output == ""


def test_the_examples_are_valid() -> None:
    """What the demo serves passes its own checks without a warning."""
    result = CliRunner().invoke(validate.command, [str(ROOT / "catalog")])

    assert result.output == "catalog is valid: 2 models, 2 profiles\n"


def test_each_example_names_its_schema() -> None:
    """An editor finds the schema from the first line of each file."""
    for path in (ROOT / "catalog").rglob("*.yaml"):
        first = path.read_text().splitlines()[0]
        name = first.removeprefix("# yaml-language-server: $schema=")
        assert (path.parent / name).resolve() == ROOT / "schemas" / catalog_schema.FILE


def test_the_kept_schema_is_current() -> None:
    """What editors complete is what the checks accept."""
    result = CliRunner().invoke(schema.command, ["--check", str(ROOT / "schemas")])

    assert result.exit_code == 0, result.exception


def test_a_schema_is_printed_written_and_checked(tmp_path: pathlib.Path) -> None:
    """What was written is what is printed; a changed one is noticed."""
    printed = CliRunner().invoke(schema.command, []).output
    CliRunner().invoke(schema.command, ["--write", str(tmp_path / "new")], catch_exceptions=False)
    kept = tmp_path / "new" / catalog_schema.FILE
    before = kept.read_text()
    kept.write_text(before + " ")

    result = CliRunner().invoke(schema.command, ["--check", str(kept.parent)])

    assert before == printed
    assert isinstance(result.exception, Failed)
    assert "it is not the schema of this version" in str(result.exception)


def test_a_missing_schema_is_noticed(tmp_path: pathlib.Path) -> None:
    """Nothing kept is not current."""
    result = CliRunner().invoke(schema.command, ["--check", str(tmp_path)])

    assert isinstance(result.exception, Failed)


def test_every_field_explains_itself() -> None:
    """An editor has a text to show for each field of each document."""
    definitions = json.loads(catalog_schema.text())["$defs"]

    silent = [
        f"{name}.{field}"
        for name, definition in definitions.items()
        for field, about in definition["properties"].items()
        if not about.get("description")
    ]

    assert silent == []
    assert all(definition["additionalProperties"] is False for definition in definitions.values())
