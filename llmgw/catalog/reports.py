"""What is wrong with a catalog, as other programs read it: JSON, GitHub's workflow commands, SARIF.

Called by `llmgw validate`; `diagnostics` has what people read.
"""

import json
import urllib.parse
from collections.abc import Mapping, Sequence

from llmgw.catalog.diagnostics import SHOWN, TOLD, Diagnostic, Spot, foremost, the_rest
from llmgw.kit.text import safe

_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_json(diagnostics: Sequence[Diagnostic]) -> str:
    """All problems as one JSON document of our own form; lines and columns from 1, `end` exclusive.

    The counts are of all; `left_out` is how many are not listed, where there are more than `TOLD`.
    """
    told, left = foremost(diagnostics, TOLD)
    errors = sum(item.severity == "error" for item in diagnostics)
    document = {
        "kind": "llmgw.diagnostics",
        "format_version": "1.0",
        "valid": not errors,
        "error_count": errors,
        "warning_count": len(diagnostics) - errors,
        "left_out": left,
        "diagnostics": [_plain(item) for item in told],
    }
    return json.dumps(document, indent=2, ensure_ascii=True)


def _plain(diagnostic: Diagnostic) -> Mapping[str, object]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "summary": diagnostic.said,
        "help": diagnostic.help,
        "range": _range(diagnostic.spot),
        "related": [{"summary": item.said, "range": _range(item.spot)} for item in diagnostic.related],
    }


def _range(spot: Spot) -> Mapping[str, object]:
    place = spot.place
    return {
        "file": place.file,
        "start": {"line": place.line, "column": place.column},
        "end": {"line": place.line, "column": place.column + spot.width},
    }


def as_github(diagnostics: Sequence[Diagnostic]) -> str:
    """A workflow command each for the foremost: GitHub shows it at its line of the pull request."""
    shown, left = foremost(diagnostics, SHOWN)
    return "\n".join([*map(_command, shown), *([f"::notice title=llmgw::{the_rest(left)}"] if left else [])])


def _command(diagnostic: Diagnostic) -> str:
    place = diagnostic.place
    where = {
        "file": place.file,
        "line": place.line,
        "endLine": place.line,
        "col": place.column,
        "endColumn": place.column + diagnostic.spot.width,
        "title": diagnostic.code,
    }
    properties = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in where.items())
    said = [diagnostic.said, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    text = _escaped("\n".join(map(safe, said)))
    return f"::{diagnostic.severity} {properties}::{text}"


def _escaped(text: str, more: str = "") -> str:
    """As the runner unescapes it: a text can end neither its line nor its property."""
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)


def as_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """All problems as one SARIF 2.1.0 log, for code scanning; `leftOut` of its run are more than `TOLD`."""
    told, left = foremost(diagnostics, TOLD)
    codes = sorted({item.code for item in told})
    driver = {"name": "llmgw", "rules": [{"id": code} for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, codes) for item in told],
        **({"properties": {"leftOut": left}} if left else {}),
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True)


def _result(diagnostic: Diagnostic, codes: Sequence[str]) -> Mapping[str, object]:
    said = f"{diagnostic.said}: {diagnostic.help}" if diagnostic.help else diagnostic.said
    related = [
        {**_location(item.spot), "id": number, "message": {"text": item.said}}
        for number, item in enumerate(diagnostic.related, 1)
    ]
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": diagnostic.severity,
        "message": {"text": said},
        "locations": [_location(diagnostic.spot)],
        **({"relatedLocations": related} if related else {}),
    }


def _location(spot: Spot) -> Mapping[str, object]:
    place = spot.place
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.line,
        "endColumn": place.column + spot.width,
    }
    return {
        "physicalLocation": {"artifactLocation": {"uri": urllib.parse.quote(place.file)}, "region": region}
    }
