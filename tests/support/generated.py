"""What is generated from the code and kept in the repository: tables inside docs/, JSON Schemas in schemas/.

    python -m tests.support.generated            rewrite it (make docs)
    python -m tests.support.generated --check    exit 1 and name what is not current (make lint)

A table stands between `<!-- NAME: generated -->` and `<!-- end NAME -->`; the text around it is a
person's. A test holds the same, so that nothing drawn here can rot.
"""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Callable, Iterator

from llmgw.catalog import schema
from llmgw.fleet import lifecycle
from llmgw.fleet.expiry import Timers
from llmgw.kit.units import show_seconds

ROOT = pathlib.Path(__file__).parents[2]


def states() -> str:
    """The life of a shard, from `fleet.lifecycle.NEXT`."""
    rows = ["| state | may become | its process | its GPUs |", "|---|---|---|---|"]
    for state, following in lifecycle.NEXT.items():
        after = ", ".join(f"`{name}`" for name in following) or "(the record is removed)"
        process = "lives" if state in lifecycle.ALIVE else "ending" if state in lifecycle.ENDED else "none"
        rows.append(f"| `{state}` | {after} | {process} | {'free' if state == 'gone' else 'held'} |")
    return "\n".join(rows)


def timers() -> str:
    """The timers of the control plane's decisions, from `fleet.expiry.Timers`."""
    rows = ["| timer | default |", "|---|---|"]
    for field in dataclasses.fields(Timers):
        value = field.default if field.name.endswith("_share") else show_seconds(field.default)
        rows.append(f"| `{field.name}` | {value} |")
    return "\n".join(rows)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "states": ("docs/life-of-a-replica.md", states),
    "timers": ("docs/life-of-a-replica.md", timers),
}
"""Marker → the document it stands in and what writes it."""


def current() -> Iterator[tuple[pathlib.Path, str]]:
    """Each generated file, and its text as it should be."""
    documents = {ROOT / name: (ROOT / name).read_text() for name, _ in TABLES.values()}
    for marker, (name, table) in TABLES.items():
        documents[ROOT / name] = replaced(documents[ROOT / name], marker, table())
    yield from documents.items()
    yield ROOT / "schemas" / schema.FILE, schema.text()


def replaced(text: str, marker: str, table: str) -> str:
    """`text` with `table` between the two comments of `marker`."""
    opening, closing = f"<!-- {marker}: generated -->", f"<!-- end {marker} -->"
    between = re.compile(f"({re.escape(opening)}\n).*?({re.escape(closing)})", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"cannot place {marker}: {opening} and {closing} are not both there")
    return between.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def stale() -> list[pathlib.Path]:
    """The generated files that are not what the code says."""
    return [path for path, text in current() if not path.exists() or path.read_text() != text]


def main(arguments: list[str]) -> int:
    """Check, or write what is stale. Returns the exit code."""
    wrong = stale()
    for path in wrong:
        print(f"{path.relative_to(ROOT)} is {'not current: run `make docs`' if arguments else 'rewritten'}")
    if arguments:
        return bool(wrong)
    texts = dict(current())
    for path in wrong:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
