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
from llmgw.planning.asking import Given
from llmgw.planning.guards import Limits

KIND = "llmgw.fleet"
VERSION = "1.0"
_PAIRS = "pairs"
_WORDS = frozenset({"reason", "because", "said", "path", "instance", "warnings", "env", "why"})
"""Keys whose text people or engines wrote: it may name anything."""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the fleet. `given` has no catalog: it is in `files`, as it was adopted."""

    at: datetime.datetime
    files: Mapping[str, str]
    given: Given
    limits: Limits = dataclasses.field(default_factory=Limits)


_SNAPSHOT = pydantic.TypeAdapter(Snapshot)


def dump(snapshot: Snapshot, *, redact: bool = False) -> str:
    """The file's text."""
    bare = dataclasses.replace(
        snapshot.given, desired=dataclasses.replace(snapshot.given.desired, catalog=None)
    )
    whole = _SNAPSHOT.dump_python(dataclasses.replace(snapshot, given=bare))
    found = _plain(whole)
    if redact:
        found = {**_redacted(found, snapshot), "files": found["files"]}
    document = {"kind": KIND, "format_version": VERSION, "redacted": redact, **found}
    return json.dumps(document, indent=1, sort_keys=True, default=str) + "\n"


def read(text: str, name: str) -> Snapshot:
    """The snapshot in `text`, its catalog loaded. Raises Failed where it is none; `name` is the file's."""
    try:
        document = json.loads(text)
        if document.get("kind") != KIND:
            raise Failed(f"cannot plan against {name}: it is no fleet export", help="llmgw fleet export")
        if str(document.get("format_version", "")).partition(".")[0] != VERSION.partition(".")[0]:
            raise Failed(
                f"cannot plan against {name}: its format is {document.get('format_version')}, this llmgw"
                f" reads {VERSION}",
                help="export it anew, or plan with the llmgw that wrote it",
            )
        found = _SNAPSHOT.validate_python(_keyed(document))
        catalog = load_files({file: data.encode() for file, data in found.files.items()})
    except (ValueError, AttributeError, TypeError, CatalogInvalid) as error:
        first = str(error).partition("\n")[0]
        raise Failed(f"cannot plan against {name}: {first}", help="llmgw fleet export") from error
    desired = dataclasses.replace(found.given.desired, catalog=catalog if found.files else None)
    return dataclasses.replace(found, given=dataclasses.replace(found.given, desired=desired))


def _plain(value: Any) -> Any:
    """`value` with nothing in it that JSON has not: a map whose keys are no texts becomes a list of pairs."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(each) for key, each in value.items()}
        return {_PAIRS: [[_plain(key), _plain(each)] for key, each in value.items()]}
    if isinstance(value, frozenset | set):
        return sorted(map(_plain, value))
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _keyed(value: Any) -> Any:
    """The way back: pairs become a map again."""
    if isinstance(value, dict):
        if value.keys() == {_PAIRS}:
            return {_key(key): _keyed(each) for key, each in value[_PAIRS]}
        return {key: _keyed(each) for key, each in value.items()}
    return [_keyed(each) for each in value] if isinstance(value, list) else value


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _redacted(document: dict[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """Every name of a machine, an address, a card or a gateway as a number, and no free text."""
    names = _pseudonyms(snapshot.given)
    pattern = re.compile(
        "|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in sorted(names, key=len, reverse=True))
        or r"(?!)"
    )

    def hide(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {hide(name): hide(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [] if key in _WORDS else [hide(each) for each in value]
        if not isinstance(value, str):
            return value
        return "" if key in _WORDS else pattern.sub(lambda match: names[match[0]], value)

    hidden = hide(document)
    said, by, _ = hidden["given"]["applied"].partition(" by ")
    hidden["given"]["applied"] = f"{said})" if by else said
    assert isinstance(hidden, dict)
    return hidden


def _pseudonyms(given: Given) -> dict[str, str]:
    found: dict[str, str] = {}
    nodes = sorted(given.fleet.nodes.values(), key=lambda node: node.info.name)
    for number, node in enumerate(nodes, 1):
        info = node.info
        found |= {
            info.id: f"node-{number}",
            info.name: f"node-{number}",
            info.address: f"10.0.0.{number % 255}",
        }
        found |= {gpu.uuid: f"node-{number}-gpu-{index}" for index, gpu in enumerate(info.gpus or ())}
    silent = sorted(given.fleet.roster - given.fleet.nodes.keys())
    found |= {name: f"silent-{number}" for number, name in enumerate(silent, 1)}
    found |= {name: f"gateway-{number}" for number, name in enumerate(sorted(given.fleet.gateways), 1)}
    return {name: hidden for name, hidden in found.items() if name}
