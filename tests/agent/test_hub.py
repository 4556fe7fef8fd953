"""A source that is a repository: pinned to a commit, proven file by file, and never outside its entry."""

import asyncio
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence

import pytest

from llmgw.agent import manifest
from llmgw.catalog.hub import Hub, choose
from llmgw.catalog.sources import parse
from llmgw.errors import Failed
from tests.agent.fetching import LIMITS, noise, store
from tests.support.weights_server import Answer, WeightsServer

COMMIT = "6f6073b423013f6a7d4d9f39144961bfbfbc386b"
SOURCE = "hf://org/model@6f6073b"
WEIGHTS = noise(100_000)
FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "config.json": b'{"architectures": []}',
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": noise(50_000, seed=2),
    "pytorch_model.bin": noise(1000, seed=3),
    "tokens/vocab.json": b"{}",
}
KEPT = sorted(set(FILES) - {".gitattributes", "pytorch_model.bin"})
LISTING = f"/api/models/org/model/revision/{SOURCE.partition('@')[2]}"


def _sibling(name: str, body: bytes) -> dict[str, object]:
    git = hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
    said: dict[str, object] = {"rfilename": name, "size": len(body), "blobId": git}
    if name.endswith((".safetensors", ".bin", ".gguf")):
        said["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
    return said


def _hub(files: Mapping[str, bytes], *, sha: str = COMMIT, extra: Sequence[object] = ()) -> WeightsServer:
    listing = {
        "id": "org/model",
        "sha": sha,
        "siblings": [_sibling(*each) for each in files.items()] + [*extra],
    }
    served = {f"/org/model/resolve/{sha}/{name}": body for name, body in files.items()}
    return WeightsServer(served | {LISTING: json.dumps(listing).encode()})


def _fetch(server: WeightsServer, root: pathlib.Path, source: str = SOURCE, token: str = "") -> pathlib.Path:
    async def story() -> pathlib.Path:
        hub = Hub(f"http://{server.address}", token)
        async with store(root, hub=hub) as held:
            return await held.weights.ensure(parse(source))

    return asyncio.run(story())


def test_a_repository_becomes_a_directory(tmp_path: pathlib.Path) -> None:
    """All files that an engine needs, of one commit, and none of the copies in another format."""
    with _hub(FILES) as server:
        path = _fetch(server, tmp_path)
    found = {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert found == {name: FILES[name] for name in KEPT}
    entry = manifest.read(path.parent)
    assert entry is not None
    assert entry.revision == COMMIT
    assert entry.source == SOURCE


def test_one_file_of_a_repository_is_that_file(tmp_path: pathlib.Path) -> None:
    """hf://…:FILE fetches this file alone, and its path is what the engine is given."""
    files = {"q4.gguf": WEIGHTS, "q8.gguf": noise(10)}
    with _hub(files) as server:
        path = _fetch(server, tmp_path, f"{SOURCE}:q4.gguf")
        assert path.read_bytes() == WEIGHTS
        assert server.count(f"/org/model/resolve/{COMMIT}/q8.gguf") == 0


def test_a_split_gguf_is_given_by_its_first_part(tmp_path: pathlib.Path) -> None:
    """llama.cpp wants the first of the files; the others are beside it."""
    files = {f"m-0000{i}-of-00002.gguf": noise(100, seed=i) for i in (2, 1)}
    with _hub(files) as server:
        path = _fetch(server, tmp_path, f"{SOURCE}:*.gguf")
    assert path.name == "m-00001-of-00002.gguf"
    assert (path.parent / "m-00002-of-00002.gguf").exists()


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/../../x", "a//x", "./x", "a\\..\\x", "x\n", "", "..", "a" * 300]
)
def test_a_listing_that_leads_outside_is_refused_whole(name: str, tmp_path: pathlib.Path) -> None:
    """One bad path and nothing of the listing is fetched, nor anything written outside."""
    bad = {"rfilename": name, "size": 1, "blobId": "0" * 40}
    with _hub(FILES, extra=[bad]) as server:
        with pytest.raises(Failed, match="file name"):
            _fetch(server, tmp_path / "cache")
        assert [asked.path for asked in server.asked] == [LISTING]
    assert [child.name for child in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ([_sibling("config.json", b"again")], "names a file twice"),
        ([_sibling("config.json/x", b"below")], "a file below a file"),
        ([{"rfilename": "x", "size": -1}], "cannot be used"),
        ([{"size": 1}], "cannot be used"),
        ([{"rfilename": "x", "lfs": {"sha256": "../../etc/passwd", "size": 1}}], "cannot be used"),
    ],
)
def test_a_listing_that_makes_no_sense_is_refused(
    extra: Sequence[object], said: str, tmp_path: pathlib.Path
) -> None:
    """What cannot be laid out below one directory is said, not guessed."""
    with _hub(FILES, extra=extra) as server, pytest.raises(Failed, match=said):
        _fetch(server, tmp_path)


def test_another_commit_than_was_asked_for_is_refused(tmp_path: pathlib.Path) -> None:
    """A revision that is a commit is held against the answer."""
    with _hub(FILES, sha="a" * 40) as server, pytest.raises(Failed, match="6f6073b was asked for"):
        _fetch(server, tmp_path)


def test_a_file_with_other_bytes_is_refused(tmp_path: pathlib.Path) -> None:
    """LFS files are held against their sha256, small ones against their git blob id."""
    for name, digest in (("model-00001-of-00002.safetensors", "sha256"), ("config.json", "git blob id")):
        with _hub(FILES) as server:
            path = f"/org/model/resolve/{COMMIT}/{name}"
            server.files[path] = bytes(len(server.files[path]))
            with pytest.raises(Failed, match=digest):
                _fetch(server, tmp_path / digest)


def test_files_that_are_done_are_not_fetched_again(tmp_path: pathlib.Path) -> None:
    """All files are one unit, resumed file by file."""
    second = f"/org/model/resolve/{COMMIT}/model-00002-of-00002.safetensors"
    with _hub(FILES) as server:
        server.behave(second, Answer(status=404))
        with pytest.raises(Failed, match="it answered 404"):
            _fetch(server, tmp_path)
        server.behave(second, Answer())
        _fetch(server, tmp_path)
        for name in KEPT:
            path = f"/org/model/resolve/{COMMIT}/{name}"
            assert server.count(path) == (2 if path == second else 1)


def test_a_repository_that_lost_a_file_gets_this_file_back(tmp_path: pathlib.Path) -> None:
    """What a hand or a disk took is fetched again, and nothing else of the unit."""
    with _hub(FILES) as server:
        path = _fetch(server, tmp_path)
        (path / "model-00002-of-00002.safetensors").unlink()
        assert _fetch(server, tmp_path) == path
        counts = {name: server.count(f"/org/model/resolve/{COMMIT}/{name}") for name in KEPT}
    assert counts == dict.fromkeys(KEPT, 1) | {"model-00002-of-00002.safetensors": 2}
    assert (path / "model-00002-of-00002.safetensors").read_bytes() == FILES[
        "model-00002-of-00002.safetensors"
    ]


def test_the_token_stays_with_the_hub(tmp_path: pathlib.Path) -> None:
    """A redirect to another port takes Range along and leaves Authorization behind."""
    name = "model-00001-of-00002.safetensors"
    path = f"/org/model/resolve/{COMMIT}/{name}"
    with _hub(FILES) as server, WeightsServer({"/blob": WEIGHTS}) as storage:
        server.behave(
            path, Answer(status=307, headers={"Location": storage.url("/blob"), "Set-Cookie": "a=b; Path=/"})
        )
        storage.behave("/blob", Answer(cut=30_000), Answer())
        _fetch(server, tmp_path, token="SECRETXYZ")
        assert {asked.headers.get("authorization") for asked in server.asked} == {"Bearer SECRETXYZ"}
        assert len(storage.asked) == 2
        for asked in storage.asked:
            assert not {"authorization", "cookie"} & asked.headers.keys()
            assert "SECRETXYZ" not in str(asked.headers)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"SECRETXYZ" not in file.read_bytes()
    assert "SECRETXYZ" not in repr(Hub("http://h", "SECRETXYZ"))


@pytest.mark.parametrize(
    ("status", "help_"), [(401, "HF_TOKEN"), (403, "terms"), (404, "no such repository")]
)
def test_a_refusal_of_the_hub_says_what_would_help(status: int, help_: str, tmp_path: pathlib.Path) -> None:
    """Gated, missing and forbidden are told apart, once: asking again would not help."""
    with _hub(FILES) as server:
        server.behave(LISTING, Answer(status=status))
        with pytest.raises(Failed, match=help_):
            _fetch(server, tmp_path)
        assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[" * 200_000])
def test_a_hub_that_is_busy_is_asked_again(body: bytes, tmp_path: pathlib.Path) -> None:
    """429, 5xx and an answer that is no JSON pass."""
    with _hub(FILES) as server:
        server.behave(LISTING, Answer(status=429), Answer(status=200, body=body), Answer())
        assert _fetch(server, tmp_path).is_dir()


def test_all_of_a_repository_must_fit_before_its_first_byte(tmp_path: pathlib.Path) -> None:
    """The sum is held against the cap and the disk, not one file after the other."""

    async def story(server: WeightsServer) -> None:
        limits = dataclasses.replace(LIMITS, largest=120_000)
        async with store(tmp_path, limits, Hub(f"http://{server.address}")) as held:
            with pytest.raises(Failed, match=r"it has 150\.0 KB, at most 120\.0 KB"):
                await held.weights.ensure(parse(SOURCE))

    with _hub(FILES) as server:
        asyncio.run(story(server))
        assert len(server.asked) == 1


def test_what_is_chosen_of_a_listing() -> None:
    """Safetensors push the same weights in other formats out; without them everything comes."""
    names = ("a.safetensors", "b.bin", "original/c.pth", "config.json", ".gitattributes", "d/e.gguf")
    assert choose(names, "") == {"a.safetensors", "config.json"}
    assert choose(("b.bin", "config.json", ".x"), "") == {"b.bin", "config.json"}
    assert choose(names, "d/*.gguf") == {"d/e.gguf"}
    assert choose(names, "nothing") == frozenset()
