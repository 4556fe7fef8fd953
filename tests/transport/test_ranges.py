"""Model facts are read from the first bytes of a model, wherever it lies, and from nothing else."""

import asyncio
import dataclasses
import json
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.hub import Hub
from llmgw.catalog.sources import Source, parse
from llmgw.kit.clock import SystemClock
from llmgw.transport import ranges
from llmgw.transport.facts import facts_of
from llmgw.transport.ranges import CannotRead, Limits
from tests.support import models, scripted_model
from tests.support.weights_server import Answer, WeightsServer

SHA = "ab" * 20
HF = f"hf://org/name@{SHA}"


def safetensors(**tensors: tuple[str, list[int]]) -> bytes:
    """A file of these tensors (name → dtype, shape), its data left out."""
    listed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = {"BF16": 2, "F32": 4}[dtype]
        for length in shape:
            size *= length
        listed[name.replace("__", ".")] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(listed).encode()
    return struct.pack("<Q", len(header)) + header


LAYER = safetensors(
    model__layers__0__self_attn__k_proj__weight=("BF16", [1024, 4096]), norm__weight=("F32", [4096])
)
ENDS = safetensors(model__embed_tokens__weight=("BF16", [1000, 4096]), lm_head__weight=("BF16", [1000, 4096]))
INDEX = json.dumps(
    {"metadata": {"total_size": 7}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
).encode()
SHARDED = {
    "config.json": json.dumps(models.LLAMA_8B).encode(),
    "model.safetensors.index.json": INDEX,
    "model-1.safetensors": LAYER,
    "model-2.safetensors": ENDS,
    "consolidated.safetensors": LAYER,
}


@pytest.fixture
def server() -> Iterator[WeightsServer]:
    """A hub that serves what a test puts into it."""
    with WeightsServer() as served:
        yield served


def on_hub(server: WeightsServer, files: Mapping[str, bytes]) -> None:
    """`files` as the repository org/name."""
    siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
    listing = json.dumps({"sha": SHA, "siblings": siblings}).encode()
    server.files = {f"/org/name/resolve/{SHA}/{name}": data for name, data in files.items()}
    server.files[f"/api/models/org/name/revision/{SHA}"] = listing


def read(
    source: str | Source, server: WeightsServer | None = None, token: str = "", **limits: Any
) -> ModelFacts:
    """The facts of `source`."""
    hub = Hub(f"http://{server.address}", token) if server else Hub("http://127.0.0.1:1")
    parsed = parse(source) if isinstance(source, str) else source
    return asyncio.run(facts_of(parsed, hub, Limits(**limits)))


def weighs(facts: ModelFacts) -> tuple[int, int, int, int, int]:
    """Total, embedding, head, copied, kv."""
    assert facts.weights is not None
    found = facts.weights
    return found.total, found.embedding, found.head, found.copied, found.kv


WEIGHS = (8192 * 1024 + 2 * 8_192_000 + 16_384, 8_192_000, 8_192_000, 16_384, 8192 * 1024)


def test_a_directory_is_read_without_a_network(tmp_path: pathlib.Path) -> None:
    """config.json, the index and each header: a second copy of the weights is not counted."""
    for name, data in SHARDED.items():
        (tmp_path / name).write_bytes(data)
    facts = read(f"file://{tmp_path}")
    assert facts.kv_heads == 8
    assert weighs(facts) == WEIGHS


def test_a_repository_is_read_by_range(server: WeightsServer) -> None:
    """The listing, the small files, and the head of each large one."""
    padding = bytes(4 << 20)
    on_hub(
        server,
        {name: data + padding if name.endswith(".safetensors") else data for name, data in SHARDED.items()},
    )
    assert weighs(read(HF, server)) == WEIGHS
    assert sum(asked.sent for asked in server.asked) < 2 << 20


def test_too_many_files_are_weighed_by_their_sizes(server: WeightsServer) -> None:
    """Beyond the bound nobody looks inside."""
    on_hub(server, SHARDED)
    facts = read(HF, server, headers=1)
    assert weighs(facts) == (len(LAYER) + len(ENDS), 0, 0, 0, 0)


def test_a_tied_head_is_not_weighed(tmp_path: pathlib.Path) -> None:
    """Engines do not load a head that is the embedding again."""
    (tmp_path / "config.json").write_text(json.dumps({**models.LLAMA_8B, "tie_word_embeddings": True}))
    (tmp_path / "model.safetensors").write_bytes(ENDS)
    assert weighs(read(f"file://{tmp_path}")) == (8_192_000, 8_192_000, 0, 0, 0)


def test_a_gguf_is_read_by_range_and_from_disk_alike(server: WeightsServer, tmp_path: pathlib.Path) -> None:
    """The same facts; of a large file only the head is asked for."""
    path = scripted_model.write(tmp_path / "model.gguf", "I am read.")
    server.files = {"/model.gguf": path.read_bytes() + bytes(8 << 20)}
    url = Source("http", f"http://{server.address}/model.gguf#sha256={'0' * 64}", "0" * 64)
    found = read(url)
    assert found.download == path.stat().st_size + (8 << 20)
    assert dataclasses.replace(found, download=0) == read(f"file://{path}")
    assert sum(asked.sent for asked in server.asked) <= 2 << 20


def test_a_long_header_is_asked_for_in_growing_pieces(server: WeightsServer) -> None:
    """Every byte is asked for once, after the length."""
    key = struct.pack("<Q", 3) + b"key" + struct.pack("<IIQ", 9, 4, 2 << 20) + bytes(8 << 20)
    name = b"general.architecture"
    kind = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, 5) + b"llama"
    server.files = {"/m.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + key + kind}
    assert read(Source("https", f"http://{server.address}/m.gguf")).architecture == "llama"
    assert len(server.asked) <= 4
    assert sum(asked.sent for asked in server.asked) == len(server.files["/m.gguf"]) + 1


def test_parts_of_a_gguf_weigh_together(server: WeightsServer, tmp_path: pathlib.Path) -> None:
    """A model in two files is as large as both."""
    whole = scripted_model.write(tmp_path / "model.gguf", "I am read.").read_bytes()
    split = struct.pack("<Q", 11) + b"split.count" + struct.pack("<II", 4, 2)
    keys = struct.unpack_from("<Q", whole, 16)[0]
    first = whole[:16] + struct.pack("<Q", keys + 1) + split + whole[24:]
    on_hub(server, {"m-00001-of-00002.gguf": first, "m-00002-of-00002.gguf": whole, "mmproj-x.gguf": whole})
    facts = read(f"{HF}:m*.gguf", server)
    assert facts.weights is not None
    assert facts.weights.total == len(first) + len(whole)


def test_the_token_stays_with_the_hub(server: WeightsServer) -> None:
    """A redirect to the storage does not carry it along."""
    on_hub(server, SHARDED)
    with WeightsServer({"/stored": SHARDED["config.json"]}) as storage:
        target = f"http://{storage.address}/stored"
        server.behave(
            f"/org/name/resolve/{SHA}/config.json", Answer(status=302, headers={"Location": target})
        )
        read(HF, server, token="SECRET")
        assert all(asked.headers.get("authorization") == "Bearer SECRET" for asked in server.asked)
        assert [asked.headers.get("authorization") for asked in storage.asked] == [None]


def test_a_server_without_ranges_will_do_for_the_first_piece(
    server: WeightsServer, tmp_path: pathlib.Path
) -> None:
    """What comes first is what is needed; the rest is left on the way."""
    whole = scripted_model.write(tmp_path / "model.gguf", "I am read.").read_bytes()
    server.files = {"/model.gguf": whole + bytes(32 << 20)}
    server.behave("/model.gguf", Answer(ranges=False))
    assert read(Source("https", f"http://{server.address}/model.gguf")).architecture == "llama"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(status=404), "answered 404"),
        (Answer(status=500), "answered 500"),
        (Answer(body=b"<html>"), "config.json is no JSON"),
        (Answer(body=b"[" * 100_000), "config.json is no JSON"),
        (Answer(body=b"[]"), "no JSON object"),
        (Answer(headers={"Content-Range": "bytes 5-9/10"}, status=206), "another range"),
        (Answer(stall=3), "127.0.0.1"),
        (Answer(cut=3), "127.0.0.1"),
    ],
)
def test_misanswers_are_said_and_nothing_more(server: WeightsServer, answer: Answer, said: str) -> None:
    """Whatever a server does instead of answering becomes one sentence."""
    on_hub(server, SHARDED)
    path = f"/org/name/resolve/{SHA}/config.json"
    server.behave(path, answer)
    with pytest.raises(CannotRead, match=said):
        read(HF, server, read=0.3)
    assert any(asked.path == path for asked in server.asked)


def test_a_body_that_trickles_ends_at_the_limit(server: WeightsServer) -> None:
    """Bytes that keep coming do not keep us: all of it together has a limit."""
    on_hub(server, SHARDED)
    server.behave(f"/org/name/resolve/{SHA}/config.json", Answer(pace=0.1, piece=1))
    clock = SystemClock()
    began = clock.now()
    with pytest.raises(CannotRead, match=r"within 0\.5 seconds"):
        read(HF, server, total=0.5)
    assert clock.now() - began < 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (struct.pack("<Q", 1 << 40), "the most"),
        (struct.pack("<Q", 100) + b"{}", "cut short"),
        (struct.pack("<Q", 2) + b"[]", "no JSON object"),
        (struct.pack("<Q", 11) + b'{"t":[1,2]}', "no dtype"),
        (b"\0\0", "8 bytes"),
        (safetensors(t=("F32", [4])).replace(b"[0, 16]", b"[0, 99]"), "disagree"),
        (safetensors(t=("F32", [44])).replace(b"[44]", b"[-4]"), "no dtype"),
    ],
)
def test_forged_headers_are_refused(tmp_path: pathlib.Path, header: bytes, said: str) -> None:
    """A header that cannot be one is never believed."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(header)
    with pytest.raises(CannotRead, match=said):
        read(f"file://{tmp_path}")


@pytest.mark.parametrize("weight_map", [None, [], {"a": 1}, {"a": "../../x"}, {"a": ".hidden"}])
def test_an_index_that_leads_elsewhere_is_refused(tmp_path: pathlib.Path, weight_map: object) -> None:
    """File names of an index stay in its directory."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "model.safetensors").write_bytes(ENDS)
    with pytest.raises(CannotRead, match="safetensors index"):
        read(f"file://{tmp_path}")


def test_a_pipe_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    """What is no file is refused before it is opened."""
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(CannotRead, match="no regular file"):
        read(f"file://{tmp_path}/model.gguf")
    with pytest.raises(CannotRead, match="neither a config"):
        read(f"file://{tmp_path}")


@pytest.mark.parametrize(
    "listing", [b"[" * 100_000, b"{}", b'{"sha": 1}', b"\xff", b'{"sha": "x", "siblings": [{}]}']
)
def test_a_listing_that_is_none_is_refused(server: WeightsServer, listing: bytes) -> None:
    """A hub that answers something else is no hub."""
    server.files[f"/api/models/org/name/revision/{SHA}"] = listing
    with pytest.raises(CannotRead, match="listing of org/name cannot be used"):
        read(HF, server)


def test_what_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    """No file, no model in a directory, no listening server: each has its sentence."""
    with pytest.raises(CannotRead, match="No such file"):
        read(f"file://{tmp_path}/nothing.gguf")
    with pytest.raises(CannotRead, match="neither a config"):
        read(f"file://{tmp_path}")
    with pytest.raises(CannotRead, match=r"127\.0\.0\.1:1"):
        read(HF)


@pytest.mark.parametrize(("digits", "length"), [(12, 10**12 - 1), (30, 0), (5_000, 0)])
def test_a_length_that_is_none(server: WeightsServer, digits: int, length: int) -> None:
    """A server may say any number of digits: what is no length of a file was not said."""
    server.files["/m.gguf"] = b"GGUF"
    server.behave("/m.gguf", Answer(headers={"Content-Range": "bytes 0-0/" + "9" * digits}))

    async def ask() -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await ranges.length(client, server.url("/m.gguf"))

    assert asyncio.run(ask()) == length
