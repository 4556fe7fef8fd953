"""Records of shards with every truncation and every flipped bit: `python -m tests.lab torn --exhaustive`.

A record names a process that may be signalled: one wrong digit of a pid is a stranger's death. Each
spoiled file is read as a starting agent reads it, beside a live engine that it described. It is the
record that was written, or it is set aside with its bytes; it is never another record, and the live
engine is then an orphan that only the control plane's word ends, never adopted as somebody else.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import tempfile
from collections.abc import Iterator
from unittest import mock

import pydantic

from llmgw.agent import adopt, marks, process, procfs, records
from llmgw.agent.marks import Identity
from llmgw.agent.records import Record, Records
from llmgw.engines.base import CommandLine
from tests.agent.making import NODE, spec
from tests.lab.command import Outcome

COOKIE = "c0ffee" * 5


def run(argv: list[str]) -> Outcome:
    """All of them with `--exhaustive`, else every 17th; `--mutant believes-what-parses` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--mutant", choices=["believes-what-parses"])
    asked = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="llmgw-torn-") as place,
        _engine(pathlib.Path(place)) as live,
        _planted(asked.mutant),
    ):
        counts = _spoil_all(pathlib.Path(place) / "shards", live, 1 if asked.exhaustive else 17)
    took = {name: counts.pop(name) for name in ("truncations", "flips", "set_aside")}
    same = counts.pop("read_as_written")  # a newline less means the same
    return Outcome(not any(counts.values()), took, {"read_as_written": same, **counts})


@contextlib.contextmanager
def _engine(place: pathlib.Path) -> Iterator[Record]:
    """A live marked process, and the record that describes it."""
    of = spec(args=(("threads", 2),), env=(("A", "b"),), gpus=("GPU-1",))
    line = CommandLine(("/bin/sleep", "600"))
    mark = marks.environment(NODE, of.key, COOKIE)
    leader = process.launch(line, mark, Identity(COOKIE), place / "log")
    try:
        yield Record(of, leader.identity, "running", "ready", argv=line.argv, log=str(place / "log"))
    finally:
        os.kill(leader.identity.pid, signal.SIGKILL)
        os.waitpid(leader.identity.pid, 0)


@contextlib.contextmanager
def _planted(mutant: str | None) -> Iterator[None]:
    """A reader that takes whatever is a record by its form."""
    if mutant is None:
        yield
        return

    def believes(data: bytes) -> Record:
        whole = json.loads(data)
        body = whole["body"] if isinstance(whole, dict) and isinstance(whole.get("body"), dict) else {}
        return dataclasses.replace(pydantic.TypeAdapter(Record).validate_python(body), kept=body)

    with mock.patch.object(records, "parse", believes):
        yield


def _spoil_all(directory: pathlib.Path, live: Record, step: int) -> dict[str, int]:
    """Each spoiled form of the file in turn, and what came of it."""
    Records(directory).write(live)
    (path,) = directory.glob("*.json")
    whole = path.read_bytes()
    names = (
        "truncations",
        "flips",
        "set_aside",
        "read_as_written",
        "wrong_records",
        "wrong_adoptions",
        "lost_bytes",
    )
    counts = dict.fromkeys(names, 0)
    for length in range(0, len(whole), step):
        counts["truncations"] += 1
        _one(path, whole[:length], live, counts)
    for bit in range(0, len(whole) * 8, step):
        at, mask = bit // 8, 1 << bit % 8
        counts["flips"] += 1
        _one(path, whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :], live, counts)
    return counts


def _one(path: pathlib.Path, data: bytes, live: Record, counts: dict[str, int]) -> None:
    path.write_bytes(data)
    found = Records(path.parent).read()
    marked = [mark for mark in marks.scan(NODE) if mark.cookie == COOKIE]
    decision = adopt.decide(found, marked, procfs.boot_id())
    if found.records:
        same = found.records == (live,)
        counts["read_as_written" if same else "wrong_records"] += 1
        counts["wrong_adoptions"] += decision.adopt not in ((), (live,))
        return
    aside = list((path.parent / "quarantine").glob("*")) if not found.foreign else [path]
    counts["set_aside"] += len(aside) == 1
    counts["lost_bytes"] += [kept.read_bytes() for kept in aside] != [data]
    described = bool(found.foreign)
    counts["wrong_adoptions"] += bool(decision.adopt or decision.sweep)
    counts["wrong_adoptions"] += not described and [orphan.cookie for orphan in decision.orphans] != [COOKIE]
    for kept in aside:
        kept.unlink()
