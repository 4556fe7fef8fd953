"""Digest, generation and cache name: what must not change by itself, and what must."""

import json
import random
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.catalog.load import load_files
from llmgw.catalog.model import Catalog, Model, Profile, generation
from llmgw.catalog.scalars import plain
from llmgw.catalog.sources import Source, cache_name, parse
from tests.catalog.samples import MODEL, PROFILE, catalog

HF = parse("hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b")
HTTP = parse(
    "http://127.0.0.1:7650/x.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
)
LLAMA = Model("llama", HF, ("p",))
PLAIN = Profile("p", "vllm", gpus_per_node=1)
RICH = Profile(
    "p", "vllm", nodes=2, gpus_per_node=4, tensor_parallel=4, pipeline_parallel=2, gpu_types=("H100*",),
    gpu_memory=80 << 30, gpu_memory_utilization=0.85, max_model_len=32768, distributed="ray",
    engine_version=">=0.21", args=(("a", True), ("b", ("x", "y"))), env=(("A", "é"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "profile", "frozen"),
    [
        (LLAMA, PLAIN, "f1c4fc4ce70e6f33"),
        (LLAMA, RICH, "f82457b3d5d687c5"),
        (
            Model("small", HTTP, ("p",)),
            Profile("p", "llamacpp", cpu_cores=0.5, cpu_memory=512 << 20),
            "a3a8799b3951a4b0",
        ),
    ],
)
def test_generations_are_frozen(model: Model, profile: Profile, frozen: str) -> None:
    """An upgrade of llmgw that changed one of these would restart every engine there is."""
    assert generation(model, profile) == frozen


@pytest.mark.parametrize(
    ("source", "frozen"),
    [
        (HF, "802764937d9e31bc77d54c28a4bb5d1cf95c9cbdb7bf8ce3b380e767ed597691"),
        (HTTP, "fcb25a23fe6c062e6bac1dc716a6ce359b47458cba432f1e3e515f17e6a6af5c"),
        (
            parse("hf://org/name@v1:*.gguf"),
            "3f1c536d4d6b7d53b4857b0471115161a6ac5d94e76ceaad2380c6e5feea8ef8",
        ),
        (parse("file:///weights/llama"), "0d3679188d0d6726ea11eb5bf19ff96dfc760400d575aa6a6bca6818d77f30be"),
    ],
)
def test_cache_names_are_frozen(source: Source, frozen: str) -> None:
    """An upgrade that changed one of these would fetch every weight again."""
    assert cache_name(source) == frozen


@pytest.mark.parametrize(
    "change",
    [
        "aliases: [other]",
        "scaling: {min: 2, max: 4}",
        "protect: true",
    ],
)
def test_a_model_may_change_without_a_restart(change: str) -> None:
    """Names, bounds and protection are other people's business than the engine's."""
    before, after = catalog(MODEL, PROFILE), catalog(MODEL + change, PROFILE)

    assert generations(after) == generations(before)
    assert after.digest != before.digest


@pytest.mark.parametrize(
    "change", ["start_deadline: 1h", "drain: 1s", "node_labels: {rack: a}", "allow_unsafe_args: true"]
)
def test_a_profile_may_change_without_a_restart(change: str) -> None:
    """When it must be up, how long it may drain and where it may run changes nothing that runs."""
    assert generations(catalog(MODEL, PROFILE + change)) == generations(catalog(MODEL, PROFILE))


@pytest.mark.parametrize(
    "change",
    ["max_model_len: 4096", "gpu_memory_utilization: 0.8", "args: {max-num-seqs: 8}", "env: {A: b}",
     "gpu: {memory: 80GiB}", "distributed: ray", 'engine_version: ">=1"'],
)  # fmt: skip
def test_what_the_engine_is_told_needs_a_restart(change: str) -> None:
    """A change that the engine would never hear of must not look done."""
    assert generations(catalog(MODEL, PROFILE + change)) != generations(catalog(MODEL, PROFILE))


@pytest.mark.parametrize(
    "default",
    ["nodes: 1", "pipeline_parallel: 1", "tensor_parallel: 4", "gpu_memory_utilization: 0.9", "distributed: mp",
     "args: {}", "gpu: {types: []}", "drain: 2m"],
)  # fmt: skip
def test_a_default_written_out_changes_nothing(default: str) -> None:
    """A field at its default is left out of every digest, so that a new field restarts nothing."""
    written, left_out = catalog(MODEL, PROFILE + default), catalog(MODEL, PROFILE)

    assert generations(written) == generations(left_out)
    assert written.digest == left_out.digest


DOCUMENTS: tuple[Mapping[str, object], ...] = (
    {
        "kind": "model",
        "name": "llama",
        "source": "hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b",
        "profiles": ["h100", "cpu"],
        "aliases": ["fast", "no", "1e3"],
        "scaling": {"min": 1, "max": 4},
        "protect": True,
    },
    {
        "kind": "profile",
        "name": "h100",
        "engine": "vllm",
        "gpus_per_node": 4,
        "gpu": {"types": ["H100*", "A: b"], "memory": "80GiB"},
        "args": {"enable-prefix-caching": True, "rope-theta": 1e6, "words": ["it's", "#1", "true", "é"], "seed": "12"},
        "env": {"A": "", "B": "null", "C": " x ", "D": "012", "E": '{"mode": 3}'},
        "node_labels": {"rack": "7", "zone": "on"},
    },
    {
        "kind": "profile",
        "name": "cpu",
        "engine": "llamacpp",
        "gpus_per_node": 0,
        "cpu": {"cores": 1.5, "memory": "8GiB"},
    },
)  # fmt: skip


@given(some.integers(0, 2**32))
def test_how_it_is_written_means_nothing(seed: int) -> None:
    """Moving and renaming files, reordering keys and quoting otherwise restart nothing."""
    first, second = written(random.Random(0)), written(random.Random(seed))

    assert second.digest == first.digest
    assert generations(second) == generations(first)
    assert (second.models, second.profiles) == (first.models, first.profiles)


def generations(found: Catalog) -> list[str]:
    return [name for model in found.models.values() for name in found.generations(model)]


def written(chance: random.Random) -> Catalog:
    """The documents in files, order, quotes and layout of chance's choosing."""
    names = [f"{chance.choice('abc')}/{chance.randrange(10**9)}.yaml" for _ in DOCUMENTS]
    return load_files(
        {
            name: f"{comment(chance)}{block(document, chance)}\n".encode()
            for name, document in zip(names, DOCUMENTS, strict=True)
        }
    )


def comment(chance: random.Random) -> str:
    return chance.choice(["", "# a comment\n", "---\n", "%YAML 1.1\n---\n", "\n\n"])


def block(document: Mapping[str, object], chance: random.Random) -> str:
    return "\n".join(
        f"{text(key, chance)}: {flow(value, chance)}" for key, value in shuffled(document, chance)
    )


def shuffled(mapping: Mapping[str, object], chance: random.Random) -> list[tuple[str, object]]:
    return chance.sample(list(mapping.items()), len(mapping))


def flow(value: object, chance: random.Random) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{text(key, chance)}: {flow(item, chance)}" for key, item in shuffled(value, chance)
        )
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(flow(item, chance) for item in value)}]"
    return text(value, chance) if isinstance(value, str) else json.dumps(value)


def text(value: str, chance: random.Random) -> str:
    """`value` in single quotes, double quotes, or none where it means the same without."""
    ways = [json.dumps(value), "'" + value.replace("'", "''") + "'"]
    if re.fullmatch(r"[A-Za-z0-9][\w./@*-]*(://[\w./@*-]+)?", value) and is_text(value):
        ways.append(value)
    return chance.choice(ways)


def is_text(value: str) -> bool:
    try:
        return plain(value) == value
    except ValueError:
        return False
