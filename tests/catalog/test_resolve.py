"""What documents mean once they are valid."""

import pytest

from llmgw.catalog.model import Profile, Scaling
from tests.catalog.samples import MODEL, PROFILE, catalog, codes

WHOLE_MODEL = """\
kind: model
name: llama-3.3-70b
source: hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b
profiles: [h100-tp4]
aliases: [llama, default]
fallbacks: [fast, qwen3-32b]
scaling: {min: 1, max: 4, target_in_flight: 8}
protect: true
"""
OTHER_MODEL = """\
kind: model
name: qwen3-32b
source: https://example.com/models/qwen.gguf
sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
profiles: [h100-tp4]
aliases: [fast]
"""
WHOLE_PROFILE = """\
kind: profile
name: h100-tp4
engine: vllm
engine_version: ">=0.21, <0.40"
nodes: 2
gpus_per_node: 4
tensor_parallel: 4
pipeline_parallel: 2
gpu: {types: ["H100*", H200], memory: 80GiB}
gpu_memory_utilization: 0.85
max_model_len: 32768
distributed: mp
node_labels: {zone: b, rack: a}
args: {max_num_seqs: 64, enable-prefix-caching: true, cuda-graph-sizes: [1, 2.5, x], compilation-config.use_inductor: false}
env: {VLLM_LOGGING_LEVEL: WARNING, NCCL_DEBUG: INFO}
start_deadline: 20m
drain: 500ms
"""


def test_a_profile_in_numbers() -> None:
    """Texts with units become seconds and bytes; mappings become pairs in order; flags one spelling."""
    (found,) = catalog(WHOLE_PROFILE).profiles.values()

    assert found == Profile(
        name="h100-tp4",
        engine="vllm",
        engine_version=">=0.21, <0.40",
        nodes=2,
        gpus_per_node=4,
        tensor_parallel=4,
        pipeline_parallel=2,
        gpu_types=("H100*", "H200"),
        gpu_memory=80 << 30,
        gpu_memory_utilization=0.85,
        max_model_len=32768,
        node_labels=(("rack", "a"), ("zone", "b")),
        args=(
            ("compilation-config.use_inductor", False),
            ("cuda-graph-sizes", ("1", "2.5", "x")),
            ("enable-prefix-caching", True),
            ("max-num-seqs", 64),
        ),
        env=(("NCCL_DEBUG", "INFO"), ("VLLM_LOGGING_LEVEL", "WARNING")),
        start_deadline=1200.0,
        drain=0.5,
    )


def test_a_profile_on_cpu() -> None:
    """0 GPUs: placement books cores and memory instead."""
    text = "kind: profile\nname: cpu\nengine: llamacpp\ngpus_per_node: 0\ncpu: {cores: 0.5, memory: 512MiB}\n"
    (found,) = catalog(text).profiles.values()

    assert found == Profile("cpu", "llamacpp", cpu_cores=0.5, cpu_memory=512 << 20)


def test_a_model_knows_models_only() -> None:
    """Aliases among the fallbacks are models, each once; sources are sources."""
    found = catalog(WHOLE_MODEL, OTHER_MODEL, WHOLE_PROFILE)

    assert found.models["llama-3.3-70b"].fallbacks == ("qwen3-32b",)
    assert found.models["llama-3.3-70b"].scaling == Scaling(1, 4, 8)
    assert found.models["qwen3-32b"].source.canonical.endswith("10db53")
    named = {alias: model.name for model in found.models.values() for alias in model.aliases}
    assert named == {"llama": "llama-3.3-70b", "default": "llama-3.3-70b", "fast": "qwen3-32b"}


@pytest.mark.parametrize(
    ("written", "bounds"), [("{}", (1, 1)), ("{min: 3}", (3, 3)), ("{min: 0}", (0, 1)), ("{max: 3}", (1, 3))]
)
def test_a_bound_left_out_follows_the_other(written: str, bounds: tuple[int, int]) -> None:
    """`min: 3` alone is three replicas, not a contradiction."""
    found = catalog(MODEL + f"scaling: {written}\n", PROFILE).models["llama"].scaling

    assert (found.min, found.max) == bounds


def test_places_are_where_it_was_written() -> None:
    """A field has the place of its key, an item its own, what was left out that of its document."""
    found = catalog("# comment\n\n" + WHOLE_MODEL, OTHER_MODEL, WHOLE_PROFILE)

    assert str(found.place("model/llama-3.3-70b")) == "000.yaml:3"
    assert str(found.place("model/llama-3.3-70b", "scaling.max")) == "000.yaml:9"
    assert str(found.place("model/llama-3.3-70b", "fallbacks.1")) == "000.yaml:8"
    assert str(found.place("model/qwen3-32b", "scaling.max")) == "001.yaml:1"
    assert str(found.place("profile/h100-tp4", "args.max_num_seqs")) == "002.yaml:14"
    assert found.place("model/nobody") is None
    assert len(found.places) == len(list(found.places))
    assert all(found.places[key].line for key in found.places)


def test_an_empty_catalog_is_valid() -> None:
    """Whether nothing may run is for the guards to say."""
    assert (catalog().models, catalog().profiles) == ({}, {})


def test_a_warning_keeps_nobody_from_running() -> None:
    """A moving revision is said, and served."""
    text = MODEL.replace("6f6073b", "main")

    assert codes(text, PROFILE) == ["W504"]
    assert "llama" in catalog(text, PROFILE).models
