"""What programs are told about problems: every form says the same, and no text breaks out of its form."""

import json

import pytest

from llmgw.catalog import reports
from llmgw.catalog.diagnostics import SHOWN, Diagnostic, Related, Spot
from llmgw.catalog.model import Place
from llmgw.catalog.reports import as_github, as_json, as_sarif

ERROR = Diagnostic(
    "E301", "no profile is called `a`", Spot(Place("m.yaml", 4, 12), 1, "profiles: [a]"), "add it"
)
WARNING = Diagnostic("W501", "the file is empty", Spot(Place("a.yaml")))
BOTH = Diagnostic("E303", "twice", ERROR.spot, related=(Related(WARNING.spot, "first here"),))


def test_json_for_tools() -> None:
    """JSON counts, and gives every place as a range."""
    found = json.loads(as_json([WARNING, BOTH]))

    assert (found["kind"], found["format_version"]) == ("llmgw.diagnostics", "1.0")
    assert (found["valid"], found["error_count"], found["warning_count"]) == (False, 1, 1)
    assert found["diagnostics"][1]["range"] == {
        "file": "m.yaml",
        "start": {"line": 4, "column": 12},
        "end": {"line": 4, "column": 13},
    }
    assert found["diagnostics"][1]["related"][0]["summary"] == "first here"


def test_github_shows_it_at_its_line() -> None:
    """One workflow command a problem, with the range it marks."""
    assert as_github([WARNING, ERROR]).splitlines() == [
        "::warning file=a.yaml,line=1,endLine=1,col=1,endColumn=2,title=W501::the file is empty",
        "::error file=m.yaml,line=4,endLine=4,col=12,endColumn=13,title=E301"
        "::no profile is called `a`%0Ahelp: add it",
    ]


@pytest.mark.parametrize("hostile", ["x\n::set-env name=A::b", "a,line=9", "::error::", "100%0A", "\x1b[2J"])
def test_a_file_cannot_command_the_runner(hostile: str) -> None:
    """Whatever is in a name or a sentence, it is one command, of one line, with six properties."""
    (line,) = as_github([Diagnostic("E101", hostile, Spot(Place(hostile, 1, 1)))]).splitlines()

    properties = line.removeprefix("::error ").partition("::")[0]
    assert line.startswith("::error file=")
    assert properties.count(",") == 5
    assert "\x1b" not in line.partition("title")[2]


def test_sarif_for_code_scanning() -> None:
    """One run, one result a problem, each pointing at its rule and its range; neighbours are related."""
    log = json.loads(as_sarif([WARNING, BOTH]))

    (run,) = log["runs"]
    warning, error = run["results"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["E303", "W501"]
    assert (warning["level"], warning["ruleId"], warning["ruleIndex"]) == ("warning", "W501", 1)
    assert error["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "m.yaml"},
        "region": {"startLine": 4, "startColumn": 12, "endLine": 4, "endColumn": 13},
    }
    assert error["relatedLocations"][0]["message"]["text"] == "first here"


def test_nothing_wrong_is_a_document_too() -> None:
    """A tool that reads the output has something to read when all is well."""
    assert json.loads(as_json([]))["valid"] is True
    assert json.loads(as_sarif([]))["runs"][0]["results"] == []


def test_a_flood_is_counted_whole_and_listed_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What code scanning would refuse is left out of both documents, and both say how much of it there was."""
    monkeypatch.setattr(reports, "TOLD", 3)
    found = [WARNING, *[ERROR] * 4]

    document, log = json.loads(as_json(found)), json.loads(as_sarif(found))

    assert (document["error_count"], document["left_out"]) == (4, 2)
    assert len(document["diagnostics"]) == len(log["runs"][0]["results"]) == 3
    assert log["runs"][0]["properties"] == {"leftOut": 2}
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == ["E301"]


def test_github_is_given_what_it_shows() -> None:
    """Annotations beyond those that a job may have are one notice, of one line."""
    lines = as_github([ERROR] * (SHOWN + 3)).splitlines()

    assert len(lines) == SHOWN + 1
    assert lines[-1] == "::notice title=llmgw::and 3 more problems; llmgw validate -o json has all"
