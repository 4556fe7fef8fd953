"""The kinds of text and value that catalog fields hold, each with the sentence that refuses what is none.

Used by `documents` for its fields. A validator gives the text back as it was written.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter

from llmgw.catalog import versions
from llmgw.kit import units

_LONGEST = 365 * 86400
_LARGEST = 2**50
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_NAME = re.compile(NAME.replace("$", r"\Z"), re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
FLAG = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_FLAG = re.compile(FLAG.replace("$", r"\Z"), re.ASCII)
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_VARIABLE = re.compile(VARIABLE.replace("$", r"\Z"), re.ASCII)
VERSIONS = r"^(?:(?:>=|<=|==|!=|>|<)\d+(?:\.\d+)*(?:\s*,\s*(?:>=|<=|==|!=|>|<)\d+(?:\.\d+)*)*)$"
_VERSIONS = re.compile(VERSIONS.replace("$", r"\Z"), re.ASCII)


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ValueError(
            f"cannot use the name {text!r}: lower-case letters, digits, `.`, `_` and `-`, "
            "a letter or digit first, at most 63"
        )
    return text


class Helped(ValueError):
    """A value that cannot be, with what to write instead."""

    def __init__(self, said: str, help_: str) -> None:
        super().__init__(said)
        self.help = help_


def _in_unit(unit: str) -> Callable[[object], object]:
    """Refuses 20 where 20s is needed, before strictness says that text is needed; `unit` is the usual one."""

    def with_unit(value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            sound = 0 < value < 10**9
            help_ = f"write {value}{unit}, if that is meant" if sound else ""
            raise Helped(f"cannot read {value} without a unit", help_)
        return value

    return with_unit


def _duration(text: str) -> str:
    if units.seconds(text) > _LONGEST:
        raise ValueError(f"cannot use {text!r}: at most 365d is possible")
    return text


def _positive_duration(text: str) -> str:
    if units.seconds(text) <= 0:
        raise ValueError(f"cannot use {text!r}: more than 0 is needed")
    return _duration(text)


def _size(text: str) -> str:
    if not 0 < units.size(text) <= _LARGEST:
        raise ValueError(f"cannot use {text!r}: more than 0 and at most 1024TiB is possible")
    return text


def _sha256(text: str) -> str:
    if not _SHA256.match(text):
        raise ValueError("cannot read this sha256: 64 lower-case hexadecimal digits are needed")
    return text


def _flag(text: str) -> str:
    if not _FLAG.match(text):
        raise ValueError(f"cannot use the flag {text!r}: write its name only, without dashes before it")
    return text


def _argument(value: object) -> "ArgumentValue":
    """The value of a flag: a word, a number, true or false, or a list of words and numbers."""
    if isinstance(value, list) and value:
        return _WORDS.validate_python(value)  # its errors name the item
    return value if isinstance(value, bool) else _word(value)


def _word(value: object) -> str | int | float:
    if isinstance(value, str):
        return _passable(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError(
        "cannot pass this to an engine: text, a number, true, false or a list of texts and numbers is "
        "needed (true for a flag without a value, quoted text for JSON)"
    )


_WORDS: TypeAdapter[tuple[str | int | float, ...]] = TypeAdapter(
    Annotated[tuple[Annotated[str | int | float, PlainValidator(_word)], ...], Field(strict=False)]
)


def _passable(text: str) -> str:
    if "\0" in text:
        raise ValueError("cannot pass this text: it holds a NUL character")
    if text.startswith("-") and not _is_number(text):
        raise ValueError(f"cannot pass {text!r}: an engine would read it as a flag of its own")
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise ValueError(f"cannot use the variable {text!r}: letters, digits and `_`, no digit first")
    return text


def _env_value(text: str) -> str:
    if "\0" in text:
        raise ValueError("cannot pass this text: it holds a NUL character")
    return text


def _versions(text: str) -> str:
    if not _VERSIONS.match(text):
        raise ValueError(f"cannot read {text!r} as versions such as >=0.21 or >=0.21,<0.30")
    if not versions.possible(text):
        raise ValueError(f"cannot use {text!r}: no version is inside all of these bounds")
    return text


def _shape(pattern: str, said: str, *examples: str) -> Any:
    """What an editor holds a text against, what it says otherwise, and what would do."""
    shown: dict[str, Any] = {"examples": list(examples)} if examples else {}
    return Field(json_schema_extra={"pattern": pattern, "patternErrorMessage": said, **shown})


_TIME = _shape(
    r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$", "Write a duration such as 30s or 20m.", "500ms", "30s", "20m", "2h"
)
_BYTES = _shape(r"^\d+(\.\d+)?\s*([KMGT]i?B|B)$", "Write a size such as 80GiB.", "80GiB", "512MiB")
Name = Annotated[
    str,
    AfterValidator(_name),
    _shape(NAME, "Use lower-case letters, digits, `.`, `_` and `-`, a letter or digit first, at most 63."),
]
Sha256 = Annotated[
    str, AfterValidator(_sha256), _shape("^[0-9a-f]{64}$", "Write 64 lower-case hexadecimal digits.")
]
Duration = Annotated[str, BeforeValidator(_in_unit("s")), AfterValidator(_duration), _TIME]
PositiveDuration = Annotated[str, BeforeValidator(_in_unit("s")), AfterValidator(_positive_duration), _TIME]
Size = Annotated[str, BeforeValidator(_in_unit("GiB")), AfterValidator(_size), _BYTES]
Flag = Annotated[
    str, AfterValidator(_flag), _shape(FLAG, "Write the name of the flag only, without dashes before it.")
]
ArgumentValue = bool | int | float | str | tuple[str | int | float, ...]
Argument = Annotated[
    ArgumentValue,
    PlainValidator(_argument, json_schema_input_type=bool | int | float | str | list[str | int | float]),
]
Variable = Annotated[
    str, AfterValidator(_variable), _shape(VARIABLE, "Use letters, digits and `_`, no digit first.")
]
EnvValue = Annotated[str, AfterValidator(_env_value)]
Versions = Annotated[
    str,
    AfterValidator(_versions),
    _shape(VERSIONS, "Write versions such as >=0.21 or >=0.21,<0.30.", ">=0.21"),
]
Names = Annotated[tuple[Name, ...], Field(strict=False)]  # strict would refuse the list that YAML gives


def given(value: object) -> object:
    """Before a field that may be left out: left open (`cpu:`) is not left out."""
    if value is None:
        raise ValueError("cannot use this without a value: leave the field out, or write one")
    return value
