"""Whether the directory of a catalog is there at all: asked before it is read, by every verb that is given one.

What is named and is nowhere is a slip in the name (exit 1); it says nothing about a catalog (exit 3).
"""

import os
import pathlib
import stat

from llmgw.catalog.suggest import did_you_mean
from llmgw.cli.options import CATALOG
from llmgw.errors import Failed
from llmgw.kit.text import safe

ELSEWHERE = "go to where the catalog is, name its directory, or begin one with llmgw init"


def look_for_catalog(path: pathlib.Path, verb: str, *, file: bool = False) -> None:
    """Raise Failed where no directory is at `path`, nor, with `file`, a file. `verb` is what cannot be done then."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        what = "file or directory" if file else "directory"
        dangles = ", only a link that leads nowhere" if path.is_symlink() else ""
        said = f"cannot {verb} {path}: there is no {what} {path.absolute()}{dangles}"
        raise Failed(safe(said), help=safe(_near(path))) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Failed(safe(f"cannot {verb} {path}: {path.absolute()}: {reason}")) from error
    if not stat.S_ISDIR(mode) and not file:
        said = f"cannot {verb} {path}: it is no directory, and a catalog is all that one directory holds"
        raise Failed(safe(said), help=safe(f"name the directory that it is in: {path.parent}"))


def _near(path: pathlib.Path) -> str:
    """The name beside it that was probably meant, else where to look."""
    try:
        beside = [each.name for each in path.absolute().parent.iterdir()]
    except OSError:
        beside = []
    meant = "" if str(path) == CATALOG else did_you_mean(path.name, beside)
    return meant or ELSEWHERE
