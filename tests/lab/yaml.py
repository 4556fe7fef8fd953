"""Hostile files in a catalog, against a control plane that serves one: `python -m tests.lab yaml`.

Each lies beside the catalog that stands. `llmgw validate` must refuse it in a process of its own, with a
place, within a second of CPU and 200 MiB; the control plane must refuse the same bytes from
an upload as quickly. Afterwards the revision, the replicas and the engines are those of before, by pid.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.lab.command import Outcome
from tests.support.hostile import TEXTS, THINGS
from tests.support.pace import pace
from tests.support.processes import LLMGW
from tests.support.standing import Standing

SECONDS, MIB = 1.0, 200.0
PLACE = re.compile(r"^\S.*:\d+:\d+: E\d{3} ", re.MULTILINE)
_CAPBSET_DROP, _READING_ANYTHING = 24, (1, 2)  # prctl(2); CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def run(argv: Sequence[str]) -> Outcome:
    """Every hostile file, or those whose name holds `--only`."""
    parser = argparse.ArgumentParser(prog="yaml", description=__doc__)
    parser.add_argument("--only", default="", help="a part of a name")
    options = parser.parse_args(argv)
    wrong: list[str] = []
    slowness = pace()
    worst = {"validate_cpu_s": 0.0, "validate_mib": 0.0, "upload_cpu_s": 0.0}
    counted = {"files": 0, "uploads": 0}
    with tempfile.TemporaryDirectory() as directory, Standing(pathlib.Path(directory)) as standing:
        before = standing.proof()
        for name in (name for name in (*TEXTS, *THINGS) if options.only in name):
            with beside(standing, name) as catalog:
                wrong += [f"{name}: {said}" for said in validated(catalog, worst)]
            counted["files"] += 1
            text = _text(TEXTS.get(name))
            if text is not None:
                wrong += [f"{name}: {said}" for said in uploaded(standing, text, worst)]
                counted["uploads"] += 1
        after = standing.proof()
        worst["control_mib"] = standing.mib()
    if before != after:
        wrong.append(f"what runs has changed: {before} -> {after}")
    figures = {name: round(value, 3) for name, value in worst.items()} | {"pace": slowness}
    return Outcome(not wrong, {**counted, "engines": len(after["engines"])}, figures, "; ".join(wrong[:10]))


def _text(data: bytes | None) -> str | None:
    """What an upload can hold of it: JSON has no bytes that are no text."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


@contextlib.contextmanager
def beside(standing: Standing, name: str) -> Iterator[pathlib.Path]:
    """A copy of the catalog that stands, with the hostile thing in it."""
    catalog = standing.stage.directory / "attacked"
    shutil.copytree(standing.catalog, catalog)
    try:
        path = catalog / "x.yaml"
        if name in TEXTS:
            path.write_bytes(TEXTS[name])
        else:
            THINGS[name](path)
        yield catalog
    finally:
        for path in catalog.iterdir():
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(catalog)


def validated(catalog: pathlib.Path, worst: dict[str, float]) -> Iterator[str]:
    """What `llmgw validate` did wrong about it."""
    with (catalog.parent / "out").open("w+b") as out:
        began = time.monotonic()  # noqa: TID251 - a lab measures
        command = [LLMGW, "validate", catalog, "-o", "concise"]
        # It takes no lock between fork and exec, which is what makes this unsafe with threads.
        child = subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=_as_anybody)  # noqa: PLW1509
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began  # noqa: TID251 - a lab measures
        out.seek(0)
        said = out.read().decode(errors="replace")
    cpu, mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    worst["validate_cpu_s"] = max(worst["validate_cpu_s"], cpu)
    worst["validate_mib"] = max(worst["validate_mib"], mib)
    if child.returncode != 3:
        yield f"exit {child.returncode}: {said[-200:]}"
    if not PLACE.search(said):
        yield f"no place: {said[:200]}"
    if cpu > SECONDS or took > 10 * SECONDS or mib > MIB:
        yield f"took {cpu:.2f} s of CPU, {took:.2f} s in all and {mib:.0f} MiB"


def _as_anybody() -> None:
    """Give up the superuser's right to read anything, so that a locked file is locked for us too."""
    if os.geteuid() == 0:
        for capability in _READING_ANYTHING:
            ctypes.CDLL(None).prctl(_CAPBSET_DROP, capability, 0, 0, 0)


def uploaded(standing: Standing, text: str, worst: dict[str, float]) -> Iterator[str]:
    """What the control plane did wrong about the same bytes, sent past the CLI's own check."""
    for what in ("plan", "apply"):
        began = standing.cpu()
        answer = standing.post(what, {**standing.files(), "catalog/x.yaml": text})
        took = standing.cpu() - began
        worst["upload_cpu_s"] = max(worst["upload_cpu_s"], took)
        if answer.status_code not in (413, 422):
            yield f"{what} answered {answer.status_code}: {answer.text[:200]}"
        elif answer.status_code == 422 and "catalog/x.yaml:" not in _said(answer.json()):
            yield f"{what} named no place: {answer.text[:200]}"
        if took > SECONDS:
            yield f"{what} took {took:.2f} s of CPU"


def _said(body: Any) -> str:
    return str(body["error"]["said"])
