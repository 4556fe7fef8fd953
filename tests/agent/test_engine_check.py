"""Running engines on purpose: bounded, ended as a tree, remembered until the program changes."""

import asyncio
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from llmgw.agent import cgroups, launcher, marks
from llmgw.agent.engine_check import EngineCheck
from llmgw.agent.sweep import SweepTimers
from llmgw.fleet.node import InstalledEngine
from tests.agent.house import alive
from tests.agent.test_probe import script
from tests.support.engines import SCRIPTS

NODE = f"node-check-{os.getpid()}"
"""Another one each run: what a killed one left behind is not this one's."""


@pytest.fixture(params=[True, False], ids=["cgroup", "no cgroup"])
def groups(request: pytest.FixtureRequest) -> Iterator[cgroups.Cgroups | None]:
    """The node's groups, where this machine lets us make some."""
    found = cgroups.find(NODE) if request.param else None
    yield found
    if found is not None:
        found.remove(found.base)


def checks(root: pathlib.Path, groups: cgroups.Cgroups | None, within: float = 10.0) -> EngineCheck:
    """The checks of one agent."""
    timers = SweepTimers(look=0.01, patience=5.0)
    inherited = launcher.inherited()
    return EngineCheck(NODE, root, cgroups=groups, inherited=inherited, timers=timers, within=within)


def engine(path: pathlib.Path, name: str = "llamacpp") -> InstalledEngine:
    return InstalledEngine(name, "", str(path))


def check(asked: EngineCheck, *engines: InstalledEngine) -> list[tuple[bool | None, str]]:
    """Whether each runs, and what it said."""
    return [(each.works, each.checked) for each in asyncio.run(asked.run(engines))]


def test_the_real_engine_tells_its_version(tmp_path: pathlib.Path, groups: cgroups.Cgroups | None) -> None:
    """The llama-server of the test environment says what it is, on its standard error."""
    program = shutil.which("llama-server-vulkan", path=str(SCRIPTS))
    assert program is not None
    ((works, said),) = check(checks(tmp_path, groups), engine(pathlib.Path(program)))
    assert (works, said.startswith("version")) == (True, True), said


def test_an_engine_that_fails_says_why(tmp_path: pathlib.Path, groups: cgroups.Cgroups | None) -> None:
    """Its exit and its last error: present is not the same as working."""
    broken = script(tmp_path / "vllm", '#!/bin/sh\necho "PackageNotFoundError: vllm" >&2\nexit 1\n')
    gone = tmp_path / "not-there"
    found = check(checks(tmp_path, groups), engine(broken, "vllm"), engine(gone))
    assert found[0] == (False, "exit 1: PackageNotFoundError: vllm")
    assert found[1][0] is False
    assert found[1][1].startswith("cannot be run: ")


def test_a_wrapper_that_starts_a_server_is_ended_as_a_tree(
    tmp_path: pathlib.Path, groups: cgroups.Cgroups | None
) -> None:
    """It drops `--version`, starts a server in a session of its own, and waits: nobody of it is left."""
    pids = tmp_path / "pids"
    server = script(tmp_path / "server", f'#!/bin/sh\ntrap "" TERM\necho $$ >> {pids}\nexec sleep 600\n')
    wrapper = f"#!/bin/sh\necho $$ >> {pids}\nsetsid {server} &\n{server}\n"
    asked = checks(tmp_path, groups, within=1.0)
    assert check(asked, engine(script(tmp_path / "wrapper", wrapper))) == [(False, "no answer within 1s")]
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 3
    assert not [pid for pid in started if alive(pid)]
    assert marks.scan(NODE) == ()


def test_a_wrapper_that_answers_and_leaves_a_server_leaves_none(
    tmp_path: pathlib.Path, groups: cgroups.Cgroups | None
) -> None:
    """What it answered counts; what it left running does not stay."""
    pid = tmp_path / "pid"
    text = f"#!/bin/sh\n(setsid sleep 600 & echo $! > {pid})\necho wrapped 1.2.3\n"
    assert check(checks(tmp_path, groups), engine(script(tmp_path / "wrapper", text))) == [(True, "1.2.3")]
    assert not alive(int(pid.read_text()))


def test_an_answer_is_kept_until_the_program_changes(tmp_path: pathlib.Path) -> None:
    """A restarted agent still knows it; another file under the same path was never checked."""
    program = engine(script(tmp_path / "vllm", "#!/bin/sh\necho 0.33.0\n"), "vllm")
    (before,) = checks(tmp_path, None).remembered([program])
    assert before.works is None
    check(checks(tmp_path, None), program)
    (kept,) = checks(tmp_path, None).remembered([program])
    assert (kept.works, kept.checked) == (True, "0.33.0")
    script(tmp_path / "vllm", "#!/bin/sh\necho 0.34.0 and more\n")
    (after,) = checks(tmp_path, None).remembered([program])
    assert after.works is None
    (tmp_path / "checks.json").write_text("torn")
    assert checks(tmp_path, None).remembered([program]) == (program,)


def test_no_secret_of_ours_reaches_what_is_checked(tmp_path: pathlib.Path) -> None:
    """A wrapper gets what an engine would get: no token, none of our options."""
    text = "#!/bin/sh\nenv | grep -c 'SECRETXYZ' || true\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMGW_TOKEN", "SECRETXYZ")
        patch.setenv("HF_TOKEN", "SECRETXYZ")
        assert check(checks(tmp_path, None), engine(script(tmp_path / "vllm", text), "vllm")) == [(True, "0")]


def test_one_that_floods_is_ended(tmp_path: pathlib.Path, groups: cgroups.Cgroups | None) -> None:
    """Output instead of an answer is cut off long before the bound of time, and leaves nothing on the disk."""
    flood = script(tmp_path / "llama-server", "#!/bin/sh\nexec yes\n")
    found = check(checks(tmp_path, groups, within=60.0), engine(flood))
    assert found == [(False, "it wrote more than 16.8 MB instead of its version")]
    assert marks.scan(NODE) == ()
    assert not list(tmp_path.glob("*.out"))
