"""One file's data → one document, or everything that keeps it from being one (E2xx).

Called by `load` with each tree that `builder` made; `checks` then compares the documents with each
other. A document that is wrong still says its kind and name where it can: others may refer to it.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llmgw.catalog.diagnostics import MAX_PROBLEMS, Diagnostic
from llmgw.catalog.documents import PROFILES, AnyDocument, ModelDocument
from llmgw.catalog.fields import Helped
from llmgw.catalog.marks import Path
from llmgw.catalog.suggest import closest, did_you_mean
from llmgw.catalog.tree import Tree

KINDS = ("model", "profile")
_ENGINES = tuple(PROFILES)


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """One file as far as it could be understood. `document` is None where it broke a rule of its schema.

    Kind, name and aliases are read even from a document that is wrong elsewhere: others refer to them.
    `rest` is such a document without its `wrong` fields: rules that need none of them are asked about it.
    """

    tree: Tree
    kind: str = ""
    name: str = ""
    aliases: tuple[str, ...] = ()
    document: AnyDocument | None = None
    rest: AnyDocument | None = None
    wrong: frozenset[str] = frozenset()

    @property
    def what(self) -> str:
        """`model/NAME` or `profile/NAME`, as `Catalog.places` has it."""
        return f"{self.kind}/{self.name}"

    def problem(self, code: str, said: str, *path: str | int, key: bool = False, **more: Any) -> Diagnostic:
        """A diagnostic at `path`; `more` are `help` and `related`."""
        return Diagnostic(code, said, self.tree.spot(path, key=key), **more)


def read(tree: Tree) -> tuple[Written, list[Diagnostic]]:
    """The document in `tree`, with the problems of its schema."""
    data = tree.value
    if data is None:
        return Written(tree), []
    if not isinstance(data, dict):
        said = "a document is a mapping that begins with `kind:`"
        return Written(tree), [Written(tree).problem("E201", said, help="write kind: model or kind: profile")]
    written, problems = _read_mapping(tree, data)
    if problems and tree.problems:
        reported = {problem.place for problem in tree.problems}
        problems = [problem for problem in problems if problem.place not in reported]
    return written, problems


def _read_mapping(tree: Tree, data: dict[str, object]) -> tuple[Written, list[Diagnostic]]:
    name = data.get("name")
    kind = _known(data.get("kind"), KINDS)
    aliases = _texts(data.get("aliases")) if kind == "model" else ()
    called = name if isinstance(name, str) else ""
    if not kind:
        written = Written(tree, kind, called, aliases)
        return written, [_unknown(written, "E201", "kind", data, KINDS)]
    engine = _known(data.get("engine"), _ENGINES)
    if kind == "profile" and not engine:
        written = Written(tree, kind, called, aliases)
        return written, [_unknown(written, "E202", "engine", data, _ENGINES)]
    document: type[AnyDocument] = PROFILES[engine] if kind == "profile" else ModelDocument
    try:
        return Written(tree, kind, called, aliases, document.model_validate(data)), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
        rest, wrong = _rest(document, data, errors)
        written = Written(tree, kind, called, aliases, rest=rest, wrong=wrong)
        return written, list(_problems(written, document, errors[:MAX_PROBLEMS]))


_STAND_INS: Mapping[str, object] = {
    "name": "x", "source": "hf://x/x@0000000", "profiles": ["x"], "gpus_per_node": 0,
}  # fmt: skip
"""What a required field that is wrong holds in the rest; no rule that needs the field sees it."""


def _rest(
    document: type[AnyDocument], data: Mapping[str, object], errors: list[ErrorDetails]
) -> tuple[AnyDocument | None, frozenset[str]]:
    """`data` as a document without what is wrong, and the fields that are; of `args` and `env` only the keys."""
    keys: dict[str, set[str | int]] = {"args": set(), "env": set()}
    wrong: set[str] = set()
    for error in errors:
        field, *inner = error["loc"]
        if inner and field in keys:
            keys[str(field)].add(inner[0])
        else:
            wrong.add(str(field))
    kept = {field: value for field, value in data.items() if field not in wrong}
    for field, bad in keys.items():
        if bad and isinstance(value := kept.get(field), dict):
            kept[field] = {key: inner for key, inner in value.items() if key not in bad}
    kept |= {field: value for field, value in _STAND_INS.items() if field in wrong}
    try:
        return document.model_validate(kept), frozenset(wrong)
    except ValidationError:
        return None, frozenset(wrong)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _known(value: object, known: tuple[str, ...]) -> str:
    return value if isinstance(value, str) and value in known else ""


def _unknown(
    written: Written, code: str, field: str, data: Mapping[str, object], known: tuple[str, ...]
) -> Diagnostic:
    choices = " or ".join(f"`{field}: {name}`" for name in known)
    if field not in data:
        return written.problem(code, f"`{field}` is missing", help=f"write {choices}")
    value = data[field]
    if isinstance(value, dict | list) or value is None:
        given = "has no value" if value is None else f"is {_kind_of_value(value)}"
        return written.problem(code, f"`{field}` {given}, a word is needed", field, help=f"write {choices}")
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    return written.problem(
        code, f"{field} `{str(value)[:40]}` is not known", field, help=hint or f"write {choices}"
    )


def _problems(
    written: Written, document: type[BaseModel], errors: list[ErrorDetails]
) -> Iterator[Diagnostic]:
    meant = {_meant(document, error) for error in errors if error["type"] == "extra_forbidden"}
    inside = {error["loc"][:-1] for error in errors}
    for error in errors:
        if error["type"] == "missing" and error["loc"] in meant:
            continue  # it is there, under a name with a slip in it
        if error["type"] == "too_short" and error["loc"] in inside:
            continue  # what is in it is wrong, and was not counted
        yield _problem(written, document, error)


def _meant(document: type[BaseModel], error: ErrorDetails) -> Path:
    *around, field = error["loc"]
    return (*around, closest(str(field), _fields(document, tuple(around))) or "")


def _fields(document: type[BaseModel], path: Path) -> list[str]:
    """The fields that may stand at `path` of `document`."""
    for step in path:
        document = _document_in(document.model_fields[str(step)].annotation)
    return list(document.model_fields)


def _document_in(annotation: Any) -> type[BaseModel]:
    """The document in a field's type, which may also be absent."""
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


def _problem(written: Written, document: type[BaseModel], error: ErrorDetails) -> Diagnostic:
    loc = error["loc"]
    if error["type"] == "extra_forbidden":
        known = _fields(document, loc[:-1])
        hint = did_you_mean(str(loc[-1]), known) or _said_elsewhere(str(loc[-1]), error["input"], known)
        said = f"unknown field `{loc[-1]}` in {_kind_of(written, loc[:-1])}"
        return written.problem("E203", said, *loc, key=True, help=hint)
    if error["type"] == "missing":
        said = f"`{loc[-1]}` is missing in {_kind_of(written, loc[:-1])}"
        return written.problem("E204", said, *loc[:-1], key=True)
    on_key = loc[-1] == "[key]"
    path = loc[:-1] if on_key else loc
    if error["type"] in _NEEDED:
        return _wrong_type(written, path, error)
    cause = error.get("ctx", {}).get("error")
    help_ = cause.help if isinstance(cause, Helped) else ""
    return written.problem("E206", _wrong_value(path, error), *path, key=on_key, help=help_)


def _said_elsewhere(field: str, value: object, known: Collection[str]) -> str:
    """Where a field of other tools is said here; empty where nobody would look for it."""
    if field != "replicas" or "scaling" not in known:
        return ""
    number = value if isinstance(value, int) and not isinstance(value, bool) else 1
    return f"how many run is said by `scaling: {{min: {number}, max: {number}}}`"


def _kind_of(written: Written, path: Path) -> str:
    if path:
        return f"`{_dotted(path)}`"
    data = cast("dict[str, object]", written.tree.value)
    return f"a profile for {data['engine']}" if written.kind == "profile" else "a model"


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


_NEEDED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"), (int, "a number"), (float, "a number"), (str, "text"), (list, "a list"), (dict, "a mapping"),
)  # fmt: skip


def _kind_of_value(value: object) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "something else")


def _wrong_type(written: Written, path: Path, error: ErrorDetails) -> Diagnostic:
    needed, value = _NEEDED[error["type"]], error["input"]
    if value is None:
        return written.problem("E205", f"`{_dotted(path)}` has no value, {needed} is needed", *path)
    given = _kind_of_value(value)
    spot = written.tree.spot(path)
    start = spot.place.column - 1
    raw = spot.line[start : start + spot.width]
    if path not in written.tree.marks or raw.startswith("*"):  # an alias stands here
        return Diagnostic("E205", f"`{_dotted(path)}` needs {needed}, this is {given}", spot)
    if needed == "text" and isinstance(value, int | float):
        said = f"`{_dotted(path)}` needs {needed}, unquoted {raw} is {given}"
        return Diagnostic("E205", said, spot, f'quote it: "{raw}"')
    said = f"`{_dotted(path)}` needs {needed}, this is {given}"
    return Diagnostic("E205", said, spot, _rewrite(needed, raw) if isinstance(value, str) else "")


def _rewrite(needed: str, raw: str) -> str:
    """How to write the text `raw` where `needed` is wanted, or nothing."""
    if needed == "true or false":
        return "write true or false"
    if needed == "a list":
        return f"write [{raw}]"
    bare = raw.strip("\"'")
    return f"leave the quotes out: {bare}" if "number" in needed and bare.isdecimal() else ""


_LIMITS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda ctx: f"more than {ctx['gt']} is needed",
    "greater_than_equal": lambda ctx: f"at least {ctx['ge']} is needed",
    "less_than_equal": lambda ctx: f"at most {ctx['le']} is possible",
}


def _wrong_value(path: Path, error: ErrorDetails) -> str:
    ctx = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(ctx["error"])
    if error["type"] in _LIMITS:
        return f"`{_dotted(path)}` is {error['input']}, {_LIMITS[error['type']](ctx)}"
    if error["type"] == "literal_error":
        return f"`{_dotted(path)}` cannot be {error['input']!r}: {ctx['expected']} is possible"
    if error["type"] in ("too_short", "string_too_short"):
        return f"`{_dotted(path)}` is empty, at least one is needed"
    return f"`{_dotted(path)}` cannot be used: {error['msg']}"
