"""Completion: names from disk, never from the network, and nothing heavy is imported for a TAB."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from llmgw.cli import names
from tests.support.ports import free_port
from tests.support.processes import LLMGW

TOLD = {
    "cluster": "prod",
    "models": {"qwen": "ready 1/2", "alpha": "ready 1/1"},
    "aliases": {"chat": "alias of qwen"},
    "nodes": {"gpu-a1": "Ready", "gpu-b1": "Lost"},
    "replicas": {"qwen/ab3d": "Ready"},
    "gateways": {"door": "silent"},
    "plans": {"p-7f3c9a": "revision 3"},
}


def completed(line: str, shell: str = "fish", **env: str) -> list[str]:
    """What the installed command offers at the end of `line`."""
    words, _, last = line.rpartition(" ")
    asked = {
        "COMP_WORDS": line if shell == "fish" else f"{words} ",
        "COMP_CWORD": last if shell == "fish" else "1",
    }
    done = subprocess.run(
        [LLMGW], capture_output=True, text=True, check=False, timeout=20,
        env={**os.environ, "_LLMGW_COMPLETE": f"{shell}_complete", **asked, **env},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_names_are_kept_by_server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fleets do not mix; a cluster's name leaves no directory; what is no JSON is nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names.remember("a:1", {**TOLD, "cluster": "../../prod"})
    names.remember("b:2", {**TOLD, "cluster": "lab", "nodes": {"x": "Ready"}})
    assert names.known("a:1")["nodes"] == TOLD["nodes"]
    assert names.known("b:2")["nodes"] == {"x": "Ready"}
    assert names.known("c:3") == {}
    assert names.fresh("a:1")
    assert not names.fresh("c:3")
    assert all(path.resolve().is_relative_to(tmp_path / "llmgw") for path in tmp_path.rglob("names.json"))
    for path in tmp_path.rglob("names.json"):
        path.write_text("{")
    assert names.known("a:1") == {}


def test_a_tab_offers_what_the_last_command_heard(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes, replicas and models with their state, of the server that is meant, while nobody answers there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = f"127.0.0.1:{free_port()}"
    names.remember(server, TOLD)
    env = {"LLMGW_SERVER": server, "XDG_CACHE_HOME": str(tmp_path)}
    assert completed("llmgw node cordon gpu", **env) == ["plain,gpu-a1\tReady", "plain,gpu-b1\tLost"]
    assert completed("llmgw why do", **env) == ["plain,door\tsilent"]
    assert completed("llmgw logs q", **env) == ["plain,qwen\tready 1/2", "plain,qwen/ab3d\tReady"]


def test_models_come_from_the_files_of_the_catalog(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their names alone, profiles apart from models; no file is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("models/qwen", "profiles/small", "beside"):
        path = tmp_path / "catalog" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff not YAML: [")
    assert completed("llmgw retry ") == ["plain,beside", "plain,qwen"]
    assert [found.value for found in names.profiles(None, None, "")] == ["beside", "small"]  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_tab_imports_nothing_heavy(shell: str, tmp_path: pathlib.Path) -> None:
    """Verbs, options and names are completed without HTTP, validation, YAML or tables."""
    heavy = ["httpx", "pydantic", "ruamel", "rich", "h2", "asyncio"]
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([m for m in {heavy} if m in sys.modules], file=sys.stderr))\n"
        "from llmgw.cli import main; main.main()"
    )
    for words in ("llmgw node cordon ",) if shell != "bash" else ("llmgw ", "llmgw replicas --model "):
        env = {
            **os.environ, "XDG_CACHE_HOME": str(tmp_path), "_LLMGW_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": words, "COMP_CWORD": "" if shell == "fish" else str(len(words.split())),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, cwd=tmp_path
        )
        assert done.stderr.strip() == "[]"


def test_a_script_is_installed_where_the_shell_looks(tmp_path: pathlib.Path) -> None:
    """Printed by default; with --install it lies in the user's directory, and a place that cannot be is said."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    for shell, place in (("fish", ".config/fish/completions/llmgw.fish"),):
        printed = subprocess.run(
            [LLMGW, "completion", shell], capture_output=True, text=True, check=True, env=env
        )
        subprocess.run([LLMGW, "completion", shell, "--install"], capture_output=True, check=True, env=env)
        assert (tmp_path / place).read_text().strip() == printed.stdout.strip()
        assert "_LLMGW_COMPLETE" in printed.stdout
    refused = subprocess.run(
        [LLMGW, "completion", "fish", "--install"], capture_output=True, text=True, check=False,
        env={**env, "XDG_CONFIG_HOME": os.devnull},
    )  # fmt: skip
    assert (refused.returncode, refused.stderr.startswith("error: cannot write ")) == (1, True)


def test_what_is_told_is_what_is_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is plain JSON with the server it came from; of the plans that were shown the newest ten stay."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names.remember("a:1", TOLD)
    names.saw_plan("a:1", "p-000001")
    names.remember("a:1", TOLD)
    for number in range(2, 14):
        names.saw_plan("a:1", f"p-{number:06}")
    told = json.loads((tmp_path / "llmgw" / "prod" / "names.json").read_text())
    assert list(told.pop("seen_plans")) == [f"p-{number:06}" for number in range(4, 14)]
    assert told == {**TOLD, "server": "a:1"}
