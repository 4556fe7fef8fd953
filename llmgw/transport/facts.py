"""What a model is, read where it lies: which small pieces of its files say it, and what they say.

Called by the control plane before it plans a model nobody has planned, and by `llmgw fit`. Reads some
megabytes of what may be a terabyte; `catalog` understands the bytes.
"""

import asyncio
import dataclasses
import pathlib
from collections.abc import Mapping

import httpx

from llmgw.catalog import gguf, gguf_facts, hf_config, safetensors
from llmgw.catalog.facts import ModelFacts, Tensor, Unusable, Weights, weigh
from llmgw.catalog.hub import Hub
from llmgw.catalog.sources import Source
from llmgw.kit.text import safe
from llmgw.transport.ranges import CannotRead, Files, Limits, OnDisk, make_client, remote

_ENOUGH = 128 << 10
"""Bytes of a safetensors file that hold most headers, so that one request is enough."""


async def facts_of(source: Source, hub: Hub, limits: Limits | None = None) -> ModelFacts:
    """What the model at `source` is. Raises CannotRead; takes `limits.total` seconds at most."""
    limits = limits or Limits()
    if source.scheme == "file":
        return await read_facts(OnDisk(pathlib.Path(source.canonical.removeprefix("file://"))), limits)
    try:
        async with asyncio.timeout(limits.total), make_client(limits) as client:
            return await read_facts(remote(client, source, hub, limits), limits)
    except TimeoutError as error:
        raise CannotRead(f"not everything came within {limits.total:g} seconds") from error
    except httpx.InvalidURL as error:
        raise CannotRead(safe(str(error))[:200]) from error


async def read_facts(files: Files, limits: Limits) -> ModelFacts:
    """What the model in `files` is. Raises CannotRead."""
    sizes = await files.sizes()
    try:
        if any(name.endswith(".safetensors") for name in sizes) or "config.json" in sizes:
            facts = await _from_config(files, sizes, limits)
        else:
            facts = await _from_gguf(files, sizes)
        return (
            facts if isinstance(files, OnDisk) else dataclasses.replace(facts, download=sum(sizes.values()))
        )
    except Unusable as error:
        raise CannotRead(safe(str(error))) from error


async def _from_gguf(files: Files, sizes: Mapping[str, int]) -> ModelFacts:
    """Of the first part of a model; a model in several parts weighs what they do together."""
    named = sorted(name for name in sizes if name.lower().endswith(".gguf") and "mmproj" not in name.lower())
    if not named:
        raise CannotRead("there is neither a config.json nor a GGUF file")
    header = await _gguf_header(files, named[0], sizes[named[0]])
    facts = gguf_facts.facts_of(header)
    if header.metadata.get("split.count", 1) in (0, 1) or facts.weights is None:
        return facts
    whole = sum(sizes[name] for name in named)
    return dataclasses.replace(facts, weights=dataclasses.replace(facts.weights, total=whole))


async def _gguf_header(files: Files, name: str, size: int) -> gguf.Header:
    data, want = b"", 1 << 20
    while True:
        data += await files.read(name, len(data), want - len(data))
        try:
            return await asyncio.to_thread(gguf.parse, data, size)
        except gguf.More as more:
            if len(data) < want:
                raise Unusable("the GGUF header ends beyond the file: the file is cut short") from more
            want = min(max(4 * want, more.need), gguf.LARGEST)


async def _from_config(files: Files, sizes: Mapping[str, int], limits: Limits) -> ModelFacts:
    if "config.json" not in sizes:
        raise CannotRead("there is no config.json beside the safetensors files")
    config = safetensors.parsed(await files.read("config.json", 0, limits.config), "config.json")
    tied = bool(hf_config.language_part(config).get("tie_word_embeddings", False))
    return hf_config.facts_of(config, await _weights(files, sizes, limits, tied=tied))


async def _weights(files: Files, sizes: Mapping[str, int], limits: Limits, *, tied: bool) -> Weights | None:
    named = await _parts(files, sizes, limits)
    known = sum(sizes.get(name, 0) for name in named)
    if not named or len(named) > limits.headers:
        return Weights(known) if known else None
    room = asyncio.Semaphore(limits.at_once)

    async def tensors(name: str) -> dict[str, Tensor]:
        async with room:
            return await _safetensors_header(files, name)

    found = await asyncio.gather(*map(tensors, named))
    return weigh({name: tensor for part in found for name, tensor in part.items()}, tied=tied)


async def _parts(files: Files, sizes: Mapping[str, int], limits: Limits) -> tuple[str, ...]:
    """The safetensors files that make the model: what the index names, else all but a second copy of it."""
    index = "model.safetensors.index.json"
    if index in sizes:
        named = safetensors.index(await files.read(index, 0, limits.index)).files
        return tuple(name for name in named if name in sizes)
    found = sorted(name for name in sizes if name.endswith(".safetensors") and "/" not in name)
    return tuple(name for name in found if name.startswith("model")) or tuple(found)


async def _safetensors_header(files: Files, name: str) -> dict[str, Tensor]:
    data = await files.read(name, 0, _ENOUGH)
    need = safetensors.header_size(data)
    if need > len(data):
        data += await files.read(name, len(data), need - len(data))
    if len(data) < need:
        raise Unusable(f"{name} is cut short")
    return safetensors.header(data[:need])
