"""Files of a state directory, read back: what they hold, nothing where there is none, else a sentence.

One reader for the control plane's and the agent's. A start that cannot read what it stands on says
which file, why and what would help; it never guesses.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import pydantic

from llmgw.errors import Failed
from llmgw.kit.files import read_regular

T = TypeVar("T")

DEEPEST = 100
"""Levels of any JSON file of ours."""


def read_state(path: pathlib.Path, parse: Callable[[bytes], T], better: str) -> T | None:
    """What `parse` makes of the file; None where there is none. Raises Failed, `better` being what would help."""
    try:
        return parse(read_regular(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        because = (error.strerror or str(error)).lower()
    except (ValueError, OverflowError, RecursionError) as error:
        because = said_of(error)
    raise Failed(f"cannot read {path}: {because}", help=better)


def from_json(data: bytes | str) -> Any:
    """What is in a JSON file. Raises ValueError, also where it is nested more than `DEEPEST` levels."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [each for one in level for each in _inside(one)]
        if not level:
            return found
    raise ValueError("it is nested too deeply")


def _inside(value: Any) -> list[Any]:
    """The lists and mappings that are in this one."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in values if isinstance(each, dict | list)]


def said_of(error: Exception) -> str:
    """One line of what is wrong with a file, with its place in it where that is known."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg'].lower()}" if where else first["msg"].lower()
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).partition("\n")[0]
