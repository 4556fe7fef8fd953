"""The fleet as one file, to plan against without its control plane: what `llmgw fleet export` writes.

Made of what `planning.asking.Given` holds and of the adopted catalog's files; read by `llmgw plan --fleet`.
It holds whatever a plan needs, so a plan of it is the plan that the control plane would have made then.
Redacted, it names no machine, no address, no card and no person; the catalog's files stay as they are.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

import pydantic

from llmgw.catalog.load import load_files
from llmgw.errors import CatalogInvalid, Failed
from llmgw.kit.state_files import from_json
from llmgw.planning.asking import Given
from llmgw.planning.guards import Limits

KIND = "llmgw.fleet"
VERSION = "1.0"
ANEW = "llmgw fleet export"
_PAIRS = "pairs"
_WORDS = frozenset({"reason", "because", "said", "path", "instance", "warnings", "env", "why"})
"""Keys whose text people or engines wrote: it may name anything."""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the fleet. `given` has no catalog: it is in `files`, as it was adopted."""

    at: pydantic.AwareDatetime
    files: Mapping[str, str]
    given: Given
    limits: Limits = dataclasses.field(default_factory=Limits)


_SNAPSHOT = pydantic.TypeAdapter(Snapshot)


def dump(snapshot: Snapshot, *, redact: bool = False) -> str:
    """The file's text."""
    given = (_nameless(snapshot) if redact else snapshot).given
    bare = dataclasses.replace(given, desired=dataclasses.replace(given.desired, catalog=None))
    whole = _SNAPSHOT.dump_python(dataclasses.replace(snapshot, given=bare))
    found = _plain(whole)
    if redact:
        found = {**_redacted(found, snapshot.given), "files": found["files"]}
    document = {"kind": KIND, "format_version": VERSION, "redacted": redact, **found}
    return json.dumps(document, indent=1, default=str) + "\n"


def read(text: str, name: str) -> Snapshot:
    """The snapshot in `text`, its catalog loaded. Raises Failed where it is none; `name` is the file's."""
    try:
        document = from_json(text)
        if document.get("kind") != KIND:
            raise Failed(f"cannot plan against {name}: it is no fleet export", help=ANEW)
        if str(document.get("format_version", "")).partition(".")[0] != VERSION.partition(".")[0]:
            raise Failed(
                f"cannot plan against {name}: its format is {document.get('format_version')}, this llmgw"
                f" reads {VERSION}",
                help="export it anew, or plan with the llmgw that wrote it",
            )
        found = _SNAPSHOT.validate_python(_keyed(document))
        catalog = load_files({file: data.encode() for file, data in found.files.items()})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Failed(f"cannot plan against {name}: {where}: {first['msg'].lower()}", help=ANEW) from error
    except (ValueError, AttributeError, TypeError, CatalogInvalid) as error:
        raise Failed(f"cannot plan against {name}: {str(error).partition(chr(10))[0]}", help=ANEW) from error
    desired = dataclasses.replace(found.given.desired, catalog=catalog if found.files else None)
    return dataclasses.replace(found, given=dataclasses.replace(found.given, desired=desired))


def _plain(value: Any) -> Any:
    """`value` with nothing in it that JSON has not: a time is RFC 3339, a map whose keys are no texts becomes a list of pairs."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(each) for key, each in value.items()}
        return {_PAIRS: [[_plain(key), _plain(each)] for key, each in value.items()]}
    if isinstance(value, frozenset | set):
        return sorted(map(_plain, value))
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _keyed(value: Any) -> Any:
    """The way back: pairs become a map again."""
    if isinstance(value, dict):
        if value.keys() == {_PAIRS}:
            return {_key(key): _keyed(each) for key, each in value[_PAIRS]}
        return {key: _keyed(each) for key, each in value.items()}
    return [_keyed(each) for each in value] if isinstance(value, list) else value


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _nameless(snapshot: Snapshot) -> Snapshot:
    """Without what people call machines, and without their reasons: those words may be any."""
    desired, fleet = snapshot.given.desired, snapshot.given.fleet
    numbers = {node: f"node-{number:04}" for number, node in enumerate(_in_order(snapshot.given), 1)}
    nodes = {
        node: dataclasses.replace(known, info=dataclasses.replace(known.info, name=numbers[node]))
        for node, known in fleet.nodes.items()
    }
    called = {node: numbers.get(node, "silent") for node in fleet.called}
    fleet = dataclasses.replace(fleet, nodes=nodes, called=called)
    was = desired.marks
    marks = dataclasses.replace(
        was,
        cordoned=dict.fromkeys(was.cordoned, ""),
        draining=dict.fromkeys(was.draining, ""),
        paused=dict.fromkeys(was.paused, ""),
    )
    desired = dataclasses.replace(desired, marks=marks)
    unread = dict.fromkeys(snapshot.given.known.unread, "it did not answer as it should")
    known = dataclasses.replace(snapshot.given.known, unread=unread)
    given = dataclasses.replace(snapshot.given, fleet=fleet, desired=desired, known=known)
    return dataclasses.replace(snapshot, given=given)


def _in_order(given: Given) -> list[str]:
    """Ids of nodes by their names, so that ties are broken as they were."""
    return sorted(given.fleet.nodes, key=lambda node: given.fleet.nodes[node].info.name)


def _redacted(document: dict[str, Any], given: Given) -> dict[str, Any]:
    """Every id of a machine, address, card and gateway as a number, and no free text."""
    names = _pseudonyms(given)
    words = sorted(names, key=len, reverse=True)
    found = "|".join(rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in words)
    pattern = re.compile(found or r"(?!)")

    def hide(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {names.get(name, name): hide(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [] if key in _WORDS else [hide(each) for each in value]
        if not isinstance(value, str):
            return value
        return "" if key in _WORDS else pattern.sub(lambda match: names[match[0]], value)

    hidden: dict[str, Any] = hide(document)
    said, by, _ = hidden["given"]["applied"].partition(" by ")
    hidden["given"]["applied"] = f"{said})" if by else said
    return hidden


def _pseudonyms(given: Given) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, node in enumerate(_in_order(given), 1):
        info = given.fleet.nodes[node].info
        found |= {node: f"node-{number:04}", info.address: f"10.0.{number // 250}.{number % 250}"}
        found |= {gpu.uuid: f"node-{number:04}-gpu-{index}" for index, gpu in enumerate(info.gpus or ())}
    silent = sorted(given.fleet.roster - given.fleet.nodes.keys())
    found |= {name: f"silent-{number}" for number, name in enumerate(silent, 1)}
    found |= {name: f"gateway-{number}" for number, name in enumerate(sorted(given.fleet.gateways), 1)}
    return {name: hidden for name, hidden in found.items() if name}
