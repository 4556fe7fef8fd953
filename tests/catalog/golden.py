"""Golden files: one a code, `golden/CODE.txt`. Files of a catalog, then what is said about them.

python -m tests.catalog.golden      rewrites what is said, for review in the diff
"""

import pathlib
import re

from llmgw.catalog.diagnostics import as_text
from llmgw.catalog.load import check

DIRECTORY = pathlib.Path(__file__).with_name("golden")
_SAID = "=== said\n"


def parts(path: pathlib.Path) -> tuple[dict[str, bytes], str]:
    """The files that `path` describes (each after `=== NAME`), and the text expected of them."""
    written, _, said = path.read_text().partition(_SAID)
    names = re.split(r"^=== (.+)\n", written, flags=re.MULTILINE)[1:]
    return {name: text.encode() for name, text in zip(names[::2], names[1::2], strict=True)}, said


def said(files: dict[str, bytes]) -> str:
    """What a person reads about these files."""
    return as_text(check(files).diagnostics) + "\n"


def main() -> None:
    """Rewrite every golden file."""
    for path in sorted(DIRECTORY.glob("*.txt")):
        files, _ = parts(path)
        kept = "".join(f"=== {name}\n{text.decode()}" for name, text in files.items())
        path.write_text(f"{kept}{_SAID}{said(files)}")


if __name__ == "__main__":
    main()
