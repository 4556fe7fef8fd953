"""The `[guards]` table of llmgw.toml: from where on a plan is refused until a person allows it. Used by `serve` and `up`.

    [guards]
    mass_stop = "20%"      # of the ready replicas
    mass_stop_least = 5    # replicas, below which no share matters

What an apply may do is never in a file: each override is an option of one apply.
"""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from llmgw.cli.found import from_here, nearest
from llmgw.cli.output import warn
from llmgw.errors import Failed
from llmgw.planning.guards import Limits

_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%\Z", re.ASCII)
_MOST = 1_000_000


def read_limits(catalog: pathlib.Path | None) -> Limits:
    """The limits of the nearest llmgw.toml, from the catalog upwards, else from here. Raises Failed."""
    found = nearest(catalog.absolute(), warn) if catalog is not None else None
    found = found or from_here(warn)
    if found is None:
        return Limits()
    table: Any = found.table.get("guards", {})
    if not isinstance(table, dict):
        raise Failed(f"cannot use `guards` of {found.path}: it is no table", help="write [guards]")
    return _limits(table, found.path, found.text)


def _limits(table: Mapping[str, Any], path: pathlib.Path, text: str) -> Limits:
    lines = {name: f"{os.path.relpath(path)}:{_line(text, name)}" for name in table}
    for name in table:
        if name not in ("mass_stop", "mass_stop_least"):
            raise Failed(
                f"cannot use `{name}` ({lines[name]}): no guard has such a limit",
                help="write mass_stop or mass_stop_least",
            )
    share, least = Limits().share, Limits().least
    if (said := table.get("mass_stop")) is not None:
        found = _SHARE.match(said) if isinstance(said, str) else None
        if found is None or float(found[1]) > 100:
            raise Failed(
                f"cannot use mass_stop = {said!r} ({lines['mass_stop']}): it is no share of 100 %",
                help='write mass_stop = "30%"',
            )
        share = float(found[1]) / 100
    if (number := table.get("mass_stop_least")) is not None:
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST:
            raise Failed(
                f"cannot use mass_stop_least = {number!r} ({lines['mass_stop_least']}): it is no number of replicas",
                help="write mass_stop_least = 3",
            )
        least = number
    return Limits(share, least, lines)


def _line(text: str, name: str) -> int:
    """The line, from 1, in which a key of the table stands: the first of that name below its heading."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if words.startswith("["):
            inside = words.partition("#")[0].strip() == "[guards]"
        elif (inside and re.match(rf"\"?{re.escape(name)}\"?\s*=", words)) or words.startswith(
            f"guards.{name}"
        ):
            return number
    return 1
