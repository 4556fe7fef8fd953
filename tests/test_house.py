"""The house rules that no linter knows, held over every file that git knows."""

import ast
import pathlib
import re
import subprocess
import sysconfig
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = pathlib.Path(sysconfig.get_path("scripts"))
SKIPPING = {"skip", "skipif", "xfail", "importorskip"}
SKIPS = {
    # The true NVML, for machines with a GPU, beside the stand-in that every machine builds.
    "tests/agent/test_gpus.py": 1,
    # systemd's own opinion of its units, where systemd is.
    "tests/cli/test_unit.py": 1,
    # Their cgroup variants need a writable cgroup v2, which a container may lack.
    "tests/agent/test_adopt.py": 1,
    "tests/agent/test_supervisor.py": 2,
}
"""File → how often it may skip: a test that does not run is not counted on."""

# Spelt in halves, so that this file does not match itself.
PLACES = re.compile("|".join(("/wor" + "k/", "/roo" + "t/", "/hom" + "e/[a-z]")))
REGISTRIES = re.compile("|".join(("pypi" + r"\.org", "python" + "hosted", "npm" + r"js\.(org|com)")))


def test_every_test_says_its_moral() -> None:
    """Each test opens with one sentence that says what it holds."""
    silent = [
        f"{path.relative_to(ROOT)}:{case.lineno} {case.name}"
        for path in tracked("tests/**/test_*.py")
        for case in cases(path)
        if not is_sentence(ast.get_docstring(case) or "")
    ]

    assert silent == []


def test_no_test_is_skipped() -> None:
    """A skipped test holds nothing: the list of those that may be is fixed, with a reason."""
    skips = {str(path.relative_to(ROOT)): skipping(path) for path in tracked("tests/**/*.py")}

    assert {name: count for name, count in skips.items() if count} == SKIPS


def test_packages_import_nothing() -> None:
    """An `__init__` with an import would open a hole in the import contracts."""
    full = [path for path in tracked("**/__init__.py") if path.stat().st_size]

    assert full == []


def test_every_child_gets_an_environment_of_its_own() -> None:
    """What is started without one inherits every secret that we were given."""
    started = [
        (path, call)
        for path in tracked("llmgw/**/*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and re.fullmatch(
            r"subprocess\.(run|Popen|call|check_\w+)|.*create_subprocess_\w+", ast.unparse(call.func)
        )
    ]
    bare = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, call in started
        if all(keyword.arg != "env" for keyword in call.keywords)
    ]

    assert len(started) > 5
    assert bare == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    """What is here works anywhere: no path of somebody's machine, no host of a package registry."""
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if PLACES.search(line) or REGISTRIES.search(line)
    ]

    assert found == []


def test_imports_keep_to_the_rooms() -> None:
    """The import contracts hold: the core stays free of clocks and sockets, the processes of each other."""
    kept = subprocess.run(
        [SCRIPTS / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert kept.returncode == 0, kept.stdout


def tracked(pattern: str = "**") -> list[pathlib.Path]:
    """The files that git tracks or would track, as they stand on disk."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", f":(glob){pattern}"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({path for name in listed.split("\0") if name and (path := ROOT / name).is_file()})


def cases(path: pathlib.Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every test function of a module, methods of test classes too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def is_sentence(text: str) -> bool:
    """One paragraph with an end."""
    return text.endswith((".", "!", "?")) and "\n\n" not in text


def skipping(path: pathlib.Path) -> int:
    """How often a module says `pytest.skip`, `mark.skipif` or the like."""
    named = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute))
    return sum(node.attr in SKIPPING for node in named)
