"""Which engines this node has, found by resolving paths: no engine is run, ever.

Called once by `agent.serve`. A wrapper script that was asked for its version could start a server; a
console script's interpreter and the metadata beside it give the version for nothing. Where only a Python
is configured, it is asked in one line of our own whether it could import the engine, which imports nothing:
a binary with a Python's name and a Python's library, for a script may call itself anything.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping

from llmgw.engines.base import Adapter
from llmgw.engines.registry import ADAPTERS
from llmgw.fleet.node import InstalledEngine
from llmgw.kit.children import environment
from llmgw.kit.files import read_regular

ASKED_WITHIN = 5.0
"""Seconds that an interpreter may take; registration waits for them, once."""

_LONGEST = 1 << 20
"""Bytes that are read of a distribution's entry points."""

_FINDS = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"

_SHEBANG = re.compile(rb"#![ \t]*(\S+)(?:[ \t]+(\S+))?[^\n]*\n(?:'''exec'\s+(\"[^\"]+\"|\S+))?")
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*\w?)?\Z", re.ASCII)
_ELF = b"\x7fELF"
_DIST = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)\.dist-info\Z")


def find(configured: Mapping[str, str], search: str) -> tuple[InstalledEngine, ...]:
    """The engines that are here. `configured` names programs by engine, in place of the usual names.

    `search` is a PATH. An engine that is configured and not there is simply not installed.
    """
    found = (_engine(adapter, configured, search) for adapter in ADAPTERS.values())
    return tuple(engine for engine in found if engine is not None)


def search_path(path: str) -> str:
    """`path`, then the directory of our own interpreter: engines are often installed beside us."""
    return (
        f"{path}:{pathlib.Path(sys.executable).parent}" if path else str(pathlib.Path(sys.executable).parent)
    )


def _engine(adapter: Adapter, configured: Mapping[str, str], search: str) -> InstalledEngine | None:
    names = (configured[adapter.name],) if adapter.name in configured else adapter.programs
    for name in names:
        path = shutil.which(name, path=search)
        if path is not None and os.path.isfile(path):
            program = pathlib.Path(path).absolute()
            if _is_python(program) and not imports(program, adapter.name):
                return None
            return InstalledEngine(adapter.name, version(program, adapter.name), str(program))
    return None


def imports(interpreter: pathlib.Path, module: str, within: float = ASKED_WITHIN) -> bool:
    """Whether `interpreter` finds the package `module`. One that starts, answers late or breaks is no proof."""
    try:
        done = subprocess.run(
            (str(interpreter), "-c", _FINDS, module),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=within,
            check=False,
            env=environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _is_python(program: pathlib.Path) -> bool:
    """Whether it is an interpreter, and no script or wrapper of that name: links of an environment are followed."""
    real = pathlib.Path(os.path.realpath(program))
    if not (_PYTHON.match(program.name) and _PYTHON.match(real.name)):
        return False
    try:
        binary = _beginning(real, len(_ELF)) == _ELF
    except OSError:
        return False
    return binary and _has_library(real.parent.parent)


def _has_library(prefix: pathlib.Path) -> bool:
    """Whether a Python's own library is below `prefix`, or the word of an environment made of copies where it is."""
    return any(prefix.glob("lib*/py*3*/os.py")) or (prefix / "pyvenv.cfg").is_file()


def version(program: pathlib.Path, engine: str) -> str:
    """The version of the distribution that `program` is a script of; empty where nothing tells it.

    For a bare Python interpreter it is the version of the engine installed in it.
    """
    interpreter = program if _is_python(program) else _interpreter(program)
    if interpreter is None or not _is_python(interpreter):
        return ""
    wanted = engine if interpreter == program else program.name
    for directory in _site_packages(interpreter):
        for match, info in _distributions(directory):
            if wanted in _scripts(info) or match["name"] == wanted:
                return match["version"]
    return ""


def _interpreter(script: pathlib.Path) -> pathlib.Path | None:
    """What the first lines of a script would be run by; None for a binary and for a shell's own scripts."""
    try:
        match = _SHEBANG.match(_beginning(script, 1024))
    except OSError:
        return None
    if match is None:
        return None
    program, argument, behind_shell = (part.decode(errors="replace") for part in match.groups(b""))
    if behind_shell:  # how installers write an interpreter's path that is too long for a shebang
        return pathlib.Path(behind_shell.strip('"'))
    if pathlib.PurePath(program).name == "env":
        resolved = shutil.which(argument)
        return pathlib.Path(resolved) if resolved else None
    return pathlib.Path(program)


def _beginning(path: pathlib.Path, most: int) -> bytes:
    """The first bytes of a file, which may be a link to one; of nothing on which reading would wait."""
    return read_regular(pathlib.Path(os.path.realpath(path)), most)


def _site_packages(interpreter: pathlib.Path) -> Iterable[pathlib.Path]:
    # Not resolved: a virtual environment's interpreter is a link out of it.
    prefix = interpreter.parent.parent
    return (*prefix.glob("lib/python3*/site-packages"), *prefix.glob("lib/python3*/dist-packages"))


def _distributions(directory: pathlib.Path) -> Iterable[tuple[re.Match[str], pathlib.Path]]:
    return ((match, path) for path in directory.glob("*.dist-info") if (match := _DIST.match(path.name)))


def _scripts(info: pathlib.Path) -> set[str]:
    """The console scripts of a distribution."""
    try:
        text = _beginning(info / "entry_points.txt", _LONGEST).decode(errors="replace")
    except OSError:
        return set()
    section = text.partition("[console_scripts]")[2].partition("\n[")[0]
    return {line.partition("=")[0].strip() for line in section.splitlines() if "=" in line}
