"""A failure as scripts get it: where a document was asked for, stdout has one also then. Used by `main`.

What people read stays on stderr.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from llmgw.cli.documents import document

FORMS = ("json", "jsonl", "yaml")
"""Outputs that are documents of our own. SARIF is not, and says nothing of what is no catalog."""

_OPTION = re.compile(r"--output(?:=(?P<long>.*))?|-[a-zA-Z]*?o=?(?P<short>.*)")


def form_asked(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The output of `FORMS` that a command line asks for, also one that cannot be understood; else empty."""
    words = list(itertools.takewhile(lambda word: word != "--", arguments))
    found = ""
    for number in range(1, 3):  # of a verb, or of a verb in a group
        found = environment.get(f"LLMGW_{'_'.join(words[:number]).upper().replace('-', '_')}_OUTPUT", found)
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        if (match := _OPTION.fullmatch(word)) is not None:
            found = match["long"] or match["short"] or after
    return found if found in FORMS else ""


def failure(form: str, code: int, said: str, help_: str = "", error: Exception | None = None) -> str:
    """The document of a failure: one line of JSON, or YAML. `where` are the places in the catalog, if it has any."""
    content = {"exit_code": int(code), "message": said, "help": help_, "where": _places(error)}
    return document("error", content, form, line=True)


def _places(error: Exception | None) -> list[str]:
    """The foremost, in order."""
    from llmgw.catalog.diagnostics import SHOWN, Invalid, foremost

    if not isinstance(error, Invalid):
        return []
    return [str(each.spot.place) for each in foremost(error.diagnostics, SHOWN)[0]]
