"""config.json → facts: every family's spelling, nested models, and whatever a stranger writes."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.catalog.divisibility import findings
from llmgw.catalog.facts import ModelFacts, Tensor, Weights, weigh
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.memory import GIB, estimate
from llmgw.catalog.model import Profile
from tests.support import models
from tests.support.models import decoder

PLAIN = decoder(32, 4096, 32, 8, 14336, 128256, 8192)


@pytest.mark.parametrize(
    ("config", "full", "windowed", "window"),
    [
        (models.LLAMA_8B, 32, 0, 0),
        (models.GEMMA3_27B, 10, 52, 1024),
        (models.CONFIGS["gemma-2-9b"], 21, 21, 4096),
        (models.GPT_OSS_120B, 18, 18, 128),
        (models.SCOUT, 12, 36, 8192),
        (models.QWEN3_NEXT, 12, 0, 0),
        (models.QWEN25_7B, 28, 0, 0),
        ({**PLAIN, "sliding_window": 4096}, 0, 32, 4096),
        ({**PLAIN, "sliding_window": None}, 32, 0, 0),
        ({**PLAIN, "layer_types": ["conv", "full_attention"] * 16}, 16, 0, 0),
        ({**PLAIN, "hybrid_override_pattern": "M-M*-M"}, 1, 0, 0),
        ({**PLAIN, "attn_layer_indices": [3, 9], "mamba_n_heads": 64}, 2, 0, 0),
        ({**PLAIN, "no_rope_layers": [1, 1, 1, 0] * 8, "attention_chunk_size": 8192}, 8, 24, 8192),
    ],
)
def test_layers_by_what_they_keep(config: models.Config, full: int, windowed: int, window: int) -> None:
    """Lists, intervals, patterns and family habits all say the same thing."""
    facts = facts_of(config)
    assert (facts.full, facts.windowed, facts.window) == (full, windowed, window)


@pytest.mark.parametrize(
    ("more", "longest"),
    [
        ({}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, 16384),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}},
            16384,
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        ({"rope_scaling": {"type": "mrope", "factor": 8.0}}, 8192),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 1e300}}, 8192),
        ({"max_position_embeddings": None}, 0),
        ({"model_max_length": 16384}, 16384),
        ({"seq_length": 4096}, 4096),
        ({"max_position_embeddings": -1, "n_positions": 2048}, 2048),
        ({"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 8.0}}, 8192),
    ],
)
def test_the_context_that_a_model_was_made_for(more: dict[str, Any], longest: int) -> None:
    """After scaling, where the file's number is from before it."""
    assert facts_of({**PLAIN, **more}).longest == longest


@pytest.mark.parametrize(
    ("written", "method", "block", "group"),
    [
        (models.FP8, "fp8", (128, 128), 0),
        (models.AWQ, "awq", None, 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq", None, 0),
        (models.W8A8, "compressed-tensors", None, 0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            "compressed-tensors",
            None,
            32,
        ),
        ({"quant_method": "mxfp4"}, "mxfp4", None, 0),
    ],
)
def test_quantisation(
    written: dict[str, Any], method: str, block: tuple[int, int] | None, group: int
) -> None:
    """Blocks and groups are what rules D5-D8 cut."""
    found = facts_of({**PLAIN, "quantization_config": written}).quantisation
    assert found is not None
    assert (found.method, found.block, found.group) == (method, block, group)


def test_kv_heads() -> None:
    """Left out they are the heads; one for all is one; a list is not known."""
    without = {name: value for name, value in PLAIN.items() if name != "num_key_value_heads"}
    assert facts_of(without).kv_heads == 32
    assert facts_of({**without, "multi_query": True}).kv_heads == 1
    assert facts_of({**without, "num_key_value_heads": [8, 4]}).kv_heads == 0


def test_the_language_model_of_a_multimodal_one() -> None:
    """Wherever publishers nest it; what it leaves out stands outside."""
    for wrap in ({"text_config": PLAIN}, {"llm_config": PLAIN}, {"thinker_config": {"text_config": PLAIN}}):
        outside = {"hidden_size": 7, "quantization_config": models.FP8, "vision_config": {"num_heads": 16}}
        facts = facts_of({**outside, **wrap})
        assert (facts.hidden, facts.heads, facts.vision_heads, facts.multimodal) == (4096, 32, 16, True)
        assert facts.quantisation is not None


def test_tensors_are_weighed_by_where_they_go() -> None:
    """Both formats' names; a tied head is not loaded twice."""
    named = {
        "model.embed_tokens.weight": (10, (5, 2)),
        "lm_head.weight": (20, (5, 2)),
        "model.layers.0.self_attn.k_proj.weight": (3, (3, 1)),
        "blk.0.attn_v.weight": (4, (3, 1)),
        "model.layers.0.mlp.experts.3.down_proj.weight": (50, (5, 10)),
        "blk.0.ffn_up_exps.weight": (60, (5, 10)),
        "model.layers.0.mlp.gate.weight": (5, (5, 1)),
        "model.norm.weight": (6, (6,)),
        "model.layers.0.mlp.down_proj.weight": (100, (10, 10)),
    }
    tensors = {name: Tensor(name, shape, size) for name, (size, shape) in named.items()}
    assert weigh(tensors, tied=False) == Weights(258, 10, 20, 11, 7, 110)
    assert weigh(tensors, tied=True) == Weights(238, 10, 0, 11, 7, 110)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
KEYS = sorted(
    {key for config in models.CONFIGS.values() for key in config}
    | {"vision_config", "text_config", "layer_types"}
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(models.CONFIGS)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_whatever_a_stranger_writes_has_facts(name: str, noise: dict[str, Any]) -> None:
    """Any JSON under any key: the number is unknown or a number, no rule and no sum ever raises."""
    config = {**models.CONFIGS[name], **noise}
    facts = facts_of(json.loads(json.dumps(config)), Weights(GIB))
    for engine in ("vllm", "sglang", "llamacpp"):
        profile = Profile("p", engine, gpus_per_node=4, tensor_parallel=4)
        findings(facts, profile)
        found = estimate(facts, profile, 80 * GIB)
        assert found is None or found.token >= 0


def test_nothing_is_unknown_everything() -> None:
    """An empty config says nothing."""
    assert facts_of({}) == ModelFacts()
