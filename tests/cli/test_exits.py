"""Every exit code of the contract, reached by a command line against a real control plane on loopback."""

import pathlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from llmgw.cli import following, main
from llmgw.cli.doing import status
from llmgw.cli.exits import Exit
from tests.lab.guards import catalog
from tests.support.loopback import Loopback, Ran

STANDS = catalog("a", "b")
MORE = catalog("a", "b", "c")
TOO_MUCH = {**STANDS, **catalog("big", big="scaling: {min: 9, max: 9}\n")}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """One node of four cards, on which two models run."""
    with Loopback(tmp_path_factory.mktemp("exits"), {"n0": 4}) as made:
        assert made.cli("apply", str(made.write(STANDS)), "--yes").code == Exit.DONE
        yield made


def ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


def broken(*_: object) -> None:
    raise ZeroDivisionError


Story = Callable[[Loopback, pytest.MonkeyPatch], Ran]


def _applied(files: Mapping[str, str], *words: str) -> Story:
    return lambda lab, _: lab.cli("apply", str(lab.write(files)), *words)


def _planned(files: Mapping[str, str], *words: str) -> Story:
    return lambda lab, _: lab.cli("plan", str(lab.write(files)), *words)


def _unreachable(lab: Loopback, _: pytest.MonkeyPatch) -> Ran:
    with Loopback(lab.directory / "gone", {}) as gone:
        pass
    return gone.cli("status")


def _not_allowed(lab: Loopback, _: pytest.MonkeyPatch) -> Ran:
    with Loopback(lab.directory / "locked", {}, tokens=True) as locked:
        return locked.cli("status")


def _bug(lab: Loopback, patch: pytest.MonkeyPatch) -> Ran:
    patch.setattr(status, "run", broken)
    ran = lab.cli("status")
    pathlib.Path(ran.err.rsplit(" ", 1)[-1].strip()).unlink()
    return ran


def _interrupted(lab: Loopback, patch: pytest.MonkeyPatch) -> Ran:
    patch.setattr(following._Follower, "_tell_events", ctrl_c)
    return lab.cli("apply", str(lab.write(TOO_MUCH)), "--yes")


REACHED: Mapping[Exit, tuple[Story, str]] = {
    Exit.DONE: (lambda lab, _: lab.cli("status"), "models 2/2 as wanted"),
    Exit.FAILED: (lambda lab, _: lab.cli("history", "show", "99"), "cannot read revision 99"),
    Exit.CHANGES: (_planned(MORE, "--detailed-exitcode"), "1 to add"),
    Exit.INVALID: (_planned({"x.yaml": "kind: model\n"}), "error"),
    Exit.BLOCKED: (_applied(catalog(), "--yes"), "--allow-empty"),
    Exit.STALE: (_applied(MORE, "--expect", "p-000000"), "Nothing was changed"),
    Exit.DECLINED: (_applied(MORE), "there is no terminal"),
    Exit.FAIL_ON: (_planned(TOO_MUCH, "--fail-on", "unplaced"), "cannot be placed"),
    Exit.USAGE: (lambda lab, _: lab.cli("plan", "--detialed-exitcode"), "No such option"),
    Exit.UNREACHABLE: (_unreachable, "refused"),
    Exit.BUG: (_bug, "this is a bug in llmgw"),
    Exit.NOT_ALLOWED: (_not_allowed, "token"),
    Exit.INTERRUPTED: (_interrupted, "Detached; the work goes on. Follow: llmgw apply --attach 2"),
    Exit.TIMEOUT: (lambda lab, _: lab.cli("apply", "--attach", "--timeout", "100ms"), "the work goes on"),
}
"""Code → how it is reached, and what is said then. The last two leave the fleet at work."""


NOWHERE: Mapping[tuple[str, ...], tuple[Exit, str]] = {
    ("replicas", "--model", "z"): (Exit.FAILED, "cannot find z: none of the models has this name"),
    ("replicas", "--node", "n9"): (Exit.FAILED, "did you mean `n0`?"),
    ("events", "--for", "nope"): (Exit.FAILED, "cannot find nope"),
    ("show", "p-1dd763"): (Exit.FAILED, "it is no number of a revision, and there is no file /"),
    ("why", "nope"): (Exit.FAILED, "cannot"),
    ("plan", "--ref", "nosuch", "."): (Exit.FAILED, "there is no commit nosuch here"),
    ("gc", "--expect", "x"): (Exit.USAGE, "--collect"),
    ("token", "create"): (Exit.USAGE, "--any-node"),
    ("plan", "--fail-on", "nope"): (Exit.USAGE, "--fail-on knows"),
    ("statu",): (Exit.USAGE, "did you mean `status`?"),
}
"""What is named and is nowhere: 1. What is no command line: 64."""


def test_a_name_that_is_nowhere_is_no_mistake_of_form(lab: Loopback) -> None:
    """One table: whoever gets 64 looks at the command, whoever gets 1 at the name."""
    for words, (code, said) in NOWHERE.items():
        ran = lab.cli(*words)
        assert (ran.code, said in ran.err) == (code, True), f"{words}: {ran}"


@pytest.mark.parametrize(
    "words",
    [
        "validate", "fmt", "plan", "plan --fleet fleet.json", "apply --yes", "up",
        "fit hf://a/b --profile p --catalog",
    ],
)  # fmt: skip
def test_a_catalog_that_is_nowhere_is_the_same_for_every_verb(
    words: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in the name, not an invalid catalog: where it was looked for, the name beside it, before anything else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog").mkdir()

    assert main.run([*words.split(), "catalgo"]) == Exit.FAILED
    out, err = capsys.readouterr()
    assert err.startswith("error: cannot ")
    assert " catalgo: there is no " in err
    assert err.endswith(f"directory {tmp_path / 'catalgo'}\n  help: did you mean `catalog`?\n")
    assert out == ""


@pytest.mark.parametrize("verb", ["plan", "apply", "up"])
def test_a_file_is_no_catalog(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` takes a part of one; the others take the whole, and say which directory that could be."""
    assert main.run([verb, __file__]) == Exit.FAILED
    err = capsys.readouterr().err
    assert "it is no directory, and a catalog is all that one directory holds" in err
    assert f"name the directory that it is in: {pathlib.Path(__file__).parent}" in err


def test_a_doctor_that_reaches_nobody_says_so_to_scripts(lab: Loopback) -> None:
    """Its screen is the same; its code is that of every other verb."""
    with Loopback(lab.directory / "away", {}) as gone:
        pass
    ran = gone.cli("doctor")
    assert ran.code == Exit.UNREACHABLE
    assert "connection refused" in ran.out
    assert "Errno" not in ran.out


def test_every_code_of_the_contract_is_reached(lab: Loopback) -> None:
    """One table: no code without a way to it, and none means two things."""
    assert set(REACHED) == set(Exit)
    for code, (story, said) in REACHED.items():
        with pytest.MonkeyPatch.context() as patch:
            ran = story(lab, patch)
        assert ran.code == code, f"{code.name}: {ran}"
        assert said in f"{ran.out}{ran.err}", f"{code.name}: {ran}"


def test_a_token_of_a_directory_that_nobody_serves_from_is_made_aloud(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first start that is meant; with a slip in the path no control plane would ever know it."""
    asked = ["token", "create", "--api", "--state-dir", str(tmp_path)]
    assert main.run(asked) == Exit.DONE
    assert f"no control plane has served from {tmp_path} yet" in capsys.readouterr().err
    (tmp_path / "epoch").write_text("1")
    assert main.run(asked) == Exit.DONE
    assert "no control plane" not in capsys.readouterr().err
