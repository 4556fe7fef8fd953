"""Records: whole or absent, and never a reason to kill or to give up."""

import dataclasses
import errno
import hashlib
import json
import os
import pathlib

import pytest

from llmgw.agent.marks import Identity
from llmgw.agent.records import Found, Record, Records, encode, nodes_of
from tests.agent.making import spec

RECORD = Record(
    spec(args=(("threads", 2), ("lora", ("a", "b")), ("jinja", True)), env=(("A", "b"),), gpus=("GPU-1",)),
    Identity("c" * 32, "/llmgw-n/c", "boot", 4711, 12345),
    state="running",
    reached="ready",
    argv=("llama-server", "-m", "x"),
    log="/logs/x.log",
)


def file_of(directory: pathlib.Path, name: str = "*.json") -> pathlib.Path:
    """The one record file there is, or the one called `name`."""
    (path,) = directory.glob(name)
    return path


def test_a_record_is_the_whole_spec(tmp_path: pathlib.Path) -> None:
    """What is read back equals what was written: it can describe the process to a stranger."""
    Records(tmp_path).write(RECORD)
    assert Records(tmp_path).read().records == (RECORD,)


def test_one_file_a_shard_with_its_digest(tmp_path: pathlib.Path) -> None:
    """The file is private, named by its shard, and carries version, sha256 and body."""
    Records(tmp_path).write(RECORD)
    path = file_of(tmp_path)
    assert (path.name, path.stat().st_mode & 0o777) == ("alpha%2Fx7qf.0.json", 0o600)
    assert set(json.loads(path.read_text())) == {"v", "sha256", "body"}


def test_writing_again_replaces_and_forgetting_removes(tmp_path: pathlib.Path) -> None:
    """A shard has one record; forgetting it twice is no error."""
    records = Records(tmp_path)
    records.write(RECORD)
    records.write(RECORD)
    assert len(list(tmp_path.iterdir())) == 1
    records.forget(RECORD.spec.key)
    records.forget(RECORD.spec.key)
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: pathlib.Path) -> None:
    """Half of all flipped bits still parse, as another value: the digest catches them."""
    Records(tmp_path).write(RECORD)
    path = file_of(tmp_path)
    whole = path.read_bytes()
    tried = range(0, len(whole) - 1, 11)
    noticed = 0
    for at in tried:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 7]) + whole[at + 1 :])
        found = Records(tmp_path).read()
        assert found.records in ((), (RECORD,))
        noticed += not found.records
    assert noticed > len(tried) * 0.9


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"v":1}', b"\xff\xfe", b'{"v":1,"sha256":"","body":{}}']
)
def test_a_bad_record_is_set_aside_and_costs_only_itself(tmp_path: pathlib.Path, data: bytes) -> None:
    """It is kept in quarantine and reported; the others are read."""
    records = Records(tmp_path)
    records.write(RECORD)
    (tmp_path / "beta%2Faaaa.0.json").write_bytes(data)
    found = records.read()
    assert found.records == (RECORD,)
    assert "set record beta%2Faaaa.0.json aside" in found.problems[0]
    (aside,) = (tmp_path / "quarantine").iterdir()
    assert aside.read_bytes() == data
    assert records.read().problems == ()


COPY = "alpha%2Fx7qf.0 (copy).json"


def test_a_record_of_another_node_is_set_aside(tmp_path: pathlib.Path) -> None:
    """Its engine is not of this node: it is not adopted, and what describes it is kept."""
    records = Records(tmp_path)
    records.write(RECORD)
    assert nodes_of(tmp_path) == {RECORD.spec.node}
    found = records.read("another")
    assert found.records == ()
    assert f"it is of node {RECORD.spec.node}, and this is another" in found.problems[0]
    (aside,) = (tmp_path / "quarantine").iterdir()
    assert aside.read_bytes() == encode(RECORD)


def test_a_copy_of_a_record_is_set_aside(tmp_path: pathlib.Path) -> None:
    """Its bytes are right and its name is not: the one of the right name is the record, whichever sorts first."""
    records = Records(tmp_path)
    records.write(RECORD)
    for name in (COPY, "zz.json"):
        (tmp_path / name).write_bytes(file_of(tmp_path, "alpha%2Fx7qf.0.json").read_bytes())
    found = records.read()
    assert found.records == (RECORD,)
    assert [
        f"set record {name} aside" in said
        for name, said in zip((COPY, "zz.json"), found.problems, strict=True)
    ] == [True, True]
    assert "of alpha/x7qf:0, whose record is alpha%2Fx7qf.0.json" in found.problems[0]
    assert file_of(tmp_path).name == "alpha%2Fx7qf.0.json"
    assert records.read().problems == ()


@pytest.mark.parametrize("real", [None, b""])
def test_a_record_under_another_name_gets_its_own_back(tmp_path: pathlib.Path, real: bytes | None) -> None:
    """It was renamed, or the real one was torn: what describes an engine that may live is not put away."""
    records = Records(tmp_path)
    records.write(RECORD)
    path = file_of(tmp_path)
    path.rename(tmp_path / COPY)
    if real is not None:
        path.write_bytes(real)
    found = records.read()
    assert found.records == (RECORD,)
    assert f"renamed record {COPY} to {path.name}" in found.problems[-1]
    assert file_of(tmp_path) == path
    assert records.read() == Found((RECORD,))


def test_a_write_that_was_cut_off_leaves_no_trace(tmp_path: pathlib.Path) -> None:
    """Temporary files of a killed agent are removed at the next start."""
    records = Records(tmp_path)
    (tmp_path / f".alpha%2Fx7qf.0.json.{os.getpid()}.tmp").write_bytes(b"half")
    assert records.read().problems == ()
    assert list(tmp_path.iterdir()) == []


def test_keys_of_another_release_are_kept_on_rewrite(tmp_path: pathlib.Path) -> None:
    """An upgrade that is taken back loses nothing it wrote meanwhile."""
    records = Records(tmp_path)
    records.write(RECORD)
    edit(file_of(tmp_path), lambda body: body.update(tomorrow=1) or body["spec"].update(shape="round"))
    (read,) = records.read().records
    records.write(read)
    body = json.loads(file_of(tmp_path).read_text())["body"]
    assert (body["tomorrow"], body["spec"]["shape"]) == (1, "round")


def test_a_newer_version_is_left_alone_and_protects_its_shard(tmp_path: pathlib.Path) -> None:
    """What only a newer release can describe is neither read nor moved, and its process is known to be described."""
    records = Records(tmp_path)
    records.write(RECORD)
    edit(file_of(tmp_path), lambda body: body.update(spec="somewhere else now"), version=2)
    before = file_of(tmp_path).read_bytes()
    found = records.read()
    assert (found.records, found.foreign) == ((), {"alpha/x7qf:0", "c" * 32})
    assert "it is of version 2, this release writes 1" in found.problems[0]
    assert file_of(tmp_path).read_bytes() == before


def test_a_newer_version_that_describes_the_shard_is_adopted_and_stays_newer(tmp_path: pathlib.Path) -> None:
    """A rolled-back agent keeps its engines: what it does not know goes back to the disk as it was."""
    records = Records(tmp_path)
    records.write(RECORD)
    edit(file_of(tmp_path), lambda body: body["spec"].update(speculation={"draft": "tiny"}), version=99)
    found = records.read()
    assert (found.records, found.foreign, found.problems) == ((RECORD,), frozenset(), ())
    records.write(dataclasses.replace(found.records[0], reached="started"))
    whole = json.loads(file_of(tmp_path).read_text())
    assert (whole["v"], whole["body"]["reached"]) == (99, "started")
    assert whole["body"]["spec"]["speculation"] == {"draft": "tiny"}
    assert records.read().records[0].reached == "started"


def edit(path: pathlib.Path, change: object, version: int = 1) -> None:
    """Change a record's body as another release would, digest and all."""
    body = json.loads(path.read_text())["body"]
    change(body)  # type: ignore[operator]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({"v": version, "sha256": digest, "body": body}))


def test_a_bad_record_that_cannot_be_set_aside_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has no room for a quarantine: the record stays, and the others are read."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    records = Records(tmp_path)
    records.write(RECORD)
    (tmp_path / "bad.json").write_text("[" * 200_000)
    monkeypatch.setattr(pathlib.Path, "replace", refuse)
    found = records.read()
    assert found.records == (RECORD,)
    (said,) = found.problems
    assert said.startswith("cannot read record bad.json")
    assert said.endswith("nor set it aside: No space left on device")
