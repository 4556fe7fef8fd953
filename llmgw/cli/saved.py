"""A plan as a file: what it is, and the very bytes it was made of. `plan --save` writes it, `apply --plan` takes it.

Readable JSON; nothing secret is in it. What is applied later is what is in the file, whatever the directory
holds by then.
"""

import dataclasses
import json
import pathlib
from typing import Any

import pydantic

from llmgw.cli.uploads import Upload, upload_of
from llmgw.errors import Failed
from llmgw.kit.files import write_to
from llmgw.kit.state_files import from_json, said_of
from llmgw.planning.plan import Plan
from llmgw.planning.promise import Promise, promise

KIND, FORMAT = "llmgw.plan", "1.0"
LARGEST = 256 << 20
_PLAN = pydantic.TypeAdapter(Plan)
_PROMISE = pydantic.TypeAdapter(Promise)


@dataclasses.dataclass(frozen=True, slots=True)
class _Bytes:
    """The part of the file that is uploaded again."""

    files: dict[str, str]
    commit: str = ""


_BYTES = pydantic.TypeAdapter(_Bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """A plan and its bytes."""

    plan: Plan
    upload: Upload


def save(path: pathlib.Path, plan: Plan, upload: Upload) -> None:
    """Write the plan of `upload` to `path`. Raises Failed."""
    document = {
        "kind": KIND,
        "format_version": FORMAT,
        "id": plan.id,
        **_PLAN.dump_python(plan, mode="json"),
        "upload": {"files": dict(upload.files), "commit": upload.commit},
    }
    try:
        write_to(path, json.dumps(document, indent=1).encode())
    except OSError as error:
        raise Failed(f"cannot save the plan to {path}: {error.strerror}") from error


def load(path: pathlib.Path) -> Saved:
    """The plan in a file. Raises Failed where it is none, or is not what was saved; CatalogInvalid as any reading."""
    try:
        if path.stat().st_size > LARGEST:
            raise Failed(f"cannot read {path}: no plan is that large")
        document: Any = from_json(path.read_bytes())
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Failed(
            f"cannot read {path} as a plan: it is no JSON of ours: {said_of(error)}",
            help="llmgw plan --save FILE",
        ) from error
    if not isinstance(document, dict) or document.get("kind") != KIND or "upload" not in document:
        raise Failed(f"cannot read {path} as a saved plan", help="llmgw plan --save FILE")
    if str(document.get("format_version", "")).partition(".")[0] != "1":
        raise Failed(f"cannot read {path}: it is of format {str(document.get('format_version'))[:20]}, not 1")
    try:
        plan = _PLAN.validate_python(document, strict=False)
        read = _BYTES.validate_python(document["upload"])
        files = {name: text.encode() for name, text in read.files.items()}
    except ValueError as error:
        raise Failed(f"cannot read {path} as a saved plan: {said_of(error)}") from error
    # What supposes something is an identity of its own, and nobody applies it.
    if not plan.suppose and promise(plan).digest != plan.digest:
        raise Failed(f"cannot take {path}: its actions are not those of {plan.id}, it was edited")
    return Saved(
        plan, upload_of(files, commit=read.commit, read=f"{read.commit or 'bytes'} as saved in {path}")
    )


def promised(plan: Plan) -> Any:
    """What a plan promises, as an apply sends it."""
    return _PROMISE.dump_python(promise(plan), mode="json")
