"""Rules D1-D14: each case that an engine was first to refuse is refused here, each that it ran is not."""

import dataclasses
import re
from typing import Any

import pytest

from llmgw.catalog.divisibility import RULES, Finding, findings
from llmgw.catalog.engine_facts import FACTS
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.model import Profile
from tests.support import models
from tests.support.models import decoder


def profile(engine: str = "vllm", tensor: int = 1, **more: Any) -> Profile:
    """A profile of `tensor` ranks on cards."""
    return Profile(name="p", engine=engine, gpus_per_node=tensor, tensor_parallel=tensor, **more)


def refused(config: models.Config, of: Profile) -> list[str]:
    """The codes of what would be refused, warnings too."""
    return [finding.code for finding in findings(facts_of(config), of)]


def said(config: models.Config, of: Profile) -> Finding:
    """The one finding."""
    [finding] = findings(facts_of(config), of)
    return finding


PCP = (("prefill-context-parallel-size", 2),)
REAL: list[tuple[str, models.Config, Profile, str]] = [
    ("sglang#3345 DeepSeek-R1 TP32", models.DEEPSEEK_V3, profile("sglang", 32), "E505"),
    ("vllm#12256 DeepSeek-V3 TP32", models.DEEPSEEK_V3, profile("vllm", 32), "E505"),
    ("vllm#17569 Qwen3-235B-FP8 TP8", models.QWEN3_235B_FP8, profile("vllm", 8), "E505"),
    ("the same under SGLang", models.QWEN3_235B_FP8, profile("sglang", 8), "E506"),
    ("vllm#42384, #45784 DeepSeek-V4-Pro TP16", models.DEEPSEEK_V4_PRO, profile("vllm", 16), "E505"),
    ("vllm#52997 Qwen3.6-35B-A3B-FP8 TP8: 512 / 8 = 64", models.QWEN36_35B_FP8, profile("vllm", 8), "E505"),
    ("vllm PR 48173 MiniMax-M2.7 TP8: 1536 / 8 = 192", models.MINIMAX_M2_FP8, profile("vllm", 8), "E505"),
    ("vllm#13640 Qwen2.5-VL-72B-AWQ TP2", models.QWEN25_VL_72B_AWQ, profile("vllm", 2), "E507"),
    ("Qwen3-14B TP5: 151936 is not divisible by 5", models.QWEN3_14B, profile("vllm", 5), "E503"),
    ("Qwen3-235B-FP8 TP4 DP2: 1536 / 8", models.QWEN3_235B_FP8, profile("vllm", 4, data_parallel=2), "E505"),
    ("the same TP4 PCP2", models.QWEN3_235B_FP8, profile("vllm", 4, args=PCP), "E505"),
    ("phi-2 at 8192", models.PHI_2, profile(max_model_len=8192), "E513"),
]
"""Not here: vllm#54178 and PR 44763. Neither text could be read, so there are no numbers to hold a rule to; PR
48173 is of the same kind as the second."""


@pytest.mark.parametrize(
    ("config", "of", "code"), [case[1:] for case in REAL], ids=[case[0] for case in REAL]
)
def test_what_engines_refused_first_is_refused_here(config: models.Config, of: Profile, code: str) -> None:
    """Each of these took somebody a start to find out."""
    assert code in refused(config, of)


EXPERTS = (("enable-expert-parallel", True),)
FINE: list[tuple[str, models.Config, Profile]] = [
    ("DeepSeek-V3 TP16", models.DEEPSEEK_V3, profile("vllm", 16)),
    ("DeepSeek-V3 TP16 under SGLang", models.DEEPSEEK_V3, profile("sglang", 16)),
    ("Qwen3-235B-FP8 TP4", models.QWEN3_235B_FP8, profile("vllm", 4)),
    ("Qwen3-235B-FP8 TP8 with experts apart", models.QWEN3_235B_FP8, profile("vllm", 8, args=EXPERTS)),
    ("the same under SGLang", models.QWEN3_235B_FP8, profile("sglang", 8, args=(("ep-size", 8),))),
    ("SGLang cuts experts by TP / EP", models.QWEN3_235B_FP8, profile("sglang", 8, args=(("ep-size", 2),))),
    ("a vLLM that pads experts", models.QWEN3_235B_FP8, profile("vllm", 8, engine_version=">=0.33")),
    ("Granite's 49155 words TP2", models.GRANITE, profile("vllm", 2)),
    ("Qwen3-14B TP2", models.QWEN3_14B, profile("vllm", 2)),
    ("Qwen3-14B TP4", models.QWEN3_14B, profile("vllm", 4)),
    ("Qwen3-14B TP8", models.QWEN3_14B, profile("vllm", 8)),
    ("Qwen2.5-VL-72B-AWQ alone", models.QWEN25_VL_72B_AWQ, profile("vllm", 1)),
    ("Qwen3.6-35B-A3B-FP8 TP4", models.QWEN36_35B_FP8, profile("vllm", 4)),
    ("MiniMax-M2.7 TP4", models.MINIMAX_M2_FP8, profile("vllm", 4)),
    ("phi-2 at 2048", models.PHI_2, profile(max_model_len=2048)),
    ("DeepSeek-V3 at what YaRN gives it", models.DEEPSEEK_V3, profile("vllm", 8, max_model_len=163840)),
    ("Qwen3-Next TP2", models.QWEN3_NEXT, profile("vllm", 2)),
    ("Scout TP4", models.SCOUT, profile("vllm", 4)),
    ("Qwen3-235B-FP8 TP2 DP2", models.QWEN3_235B_FP8, profile("vllm", 2, data_parallel=2)),
    ("TP4 DP2, experts apart", models.QWEN3_235B_FP8, profile("vllm", 4, data_parallel=2, args=EXPERTS)),
    ("DeepSeek-V3 TP8 DP2: 2048 / 16", models.DEEPSEEK_V3, profile("vllm", 8, data_parallel=2)),
    (
        "SGLang's data parallel ranks cut no expert",
        models.DEEPSEEK_V3,
        profile("sglang", 16, data_parallel=16),
    ),
    ("dense DP2", models.QWEN3_14B, profile("vllm", 8, data_parallel=2)),
    ("gpt-oss TP2", models.GPT_OSS_20B, profile("vllm", 2)),
]


@pytest.mark.parametrize(("config", "of"), [case[1:] for case in FINE], ids=[case[0] for case in FINE])
def test_what_engines_run_is_not_refused(config: models.Config, of: Profile) -> None:
    """A rule that is too strict costs more than one that is not there."""
    assert refused(config, of) == []


def test_a_refusal_says_its_numbers_and_what_would_do() -> None:
    """The engine says that 151936 is not divisible by 5; we say what is."""
    five = [each for each in findings(facts_of(models.QWEN3_14B), profile("vllm", 5)) if each.rule == 3]
    assert five[0].said == "the vocabulary, 151936 padded to 151936, is not divisible by 5"
    assert five[0].help == "tensor_parallel 1, 2, 4 or 8 would do"


def test_d1_heads() -> None:
    """28 heads on 8 ranks cannot be."""
    assert "E501" in refused(models.QWEN25_7B, profile("vllm", 8))
    assert "E501" in refused(models.QWEN25_7B, profile("sglang", 8))


def test_d1_counts_the_ranks_that_share_attention() -> None:
    """SGLang's attention data parallelism leaves fewer ranks for the heads."""
    assert "E501" not in refused(models.QWEN25_7B, profile("sglang", 8, data_parallel=2))


def test_d2_kv_heads() -> None:
    """10 KV heads on 4 ranks: neither shares the other. The engine would say AssertionError and nothing else."""
    assert refused(models.CONFIGS["phi-4"], profile("vllm", 4)) == ["E502"]
    assert refused(models.CONFIGS["phi-4"], profile("vllm", 2)) == []
    assert refused(models.QWEN3_30B_A3B, profile("vllm", 8)) == []


def test_d3_is_vllms_alone() -> None:
    """SGLang pads the vocabulary by the number of ranks."""
    assert "E503" not in refused(models.QWEN3_14B, profile("sglang", 5))


def test_d4_ffn() -> None:
    """The width of every kind of layer counts, and only of kinds that the model has."""
    assert refused(decoder(2, 768, 12, 12, 1002, 64, 0), profile("vllm", 4)) == ["E504"]
    wide = {"num_experts": 8, "moe_intermediate_size": 256, "decoder_sparse_step": 1}
    assert refused(decoder(2, 768, 12, 12, 1002, 64, 0, **wide), profile("vllm", 4)) == []
    assert refused(decoder(2, 768, 12, 12, 1002, 64, 0, **wide, mlp_only_layers=[0]), profile("vllm", 4)) == [
        "E504"
    ]


def test_experts_are_cut_by_data_parallel_ranks_too() -> None:
    """As many parts as the estimate weighs, whatever the way they are stored; the refusal says how many."""
    plain = {"num_experts": 16, "moe_intermediate_size": 250 * 2, "decoder_sparse_step": 1}
    config = decoder(2, 1024, 8, 8, 1024, 64, 0, **plain)
    assert refused(config, profile("vllm", 4)) == []
    assert refused(config, profile("vllm", 4, data_parallel=2)) == ["E504"]
    assert refused(config, profile("vllm", 4, data_parallel=2, args=EXPERTS)) == []
    finding = said(models.QWEN3_235B_FP8, profile("vllm", 4, data_parallel=2))
    assert finding.said.startswith("down_proj of an expert has 192 inputs on each of 8 ranks")
    assert finding.help.startswith("tensor_parallel 1 or 2 would do; or args: {enable-expert-parallel: true}")
    eight = said(models.QWEN3_235B_FP8, profile("vllm", 1, data_parallel=8))
    assert eight.help == "args: {enable-expert-parallel: true}, or engine_version: '>=0.33'"
    grouped = {**config, "moe_intermediate_size": 512, "quantization_config": models.AWQ}
    assert refused(grouped, profile("vllm", 1, data_parallel=4)) == []
    assert refused(grouped, profile("vllm", 1, data_parallel=8)) == ["E507"]


def test_d5_leaves_out_what_is_not_quantised() -> None:
    """A part that the checkpoint keeps plain has no blocks to cut."""
    config = decoder(2, 1024, 8, 8, 576 * 4, 64, 0, quantization_config=models.FP8)
    assert refused(config, profile("vllm", 4)) == ["E505"]
    plain = {**models.FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"]}
    assert refused({**config, "quantization_config": plain}, profile("vllm", 4)) == []


def test_d6_names_the_way_out() -> None:
    """An EP size that does not divide is another mistake than a width that does not."""
    assert "does not divide" in said(models.QWEN3_235B_FP8, profile("sglang", 8, args=(("ep-size", 3),))).said
    assert "ep-size" in said(models.QWEN3_235B_FP8, profile("sglang", 8)).help


def test_d7_groups_of_one_shard() -> None:
    """Without tensor parallelism nothing is cut, whatever the group."""
    odd = decoder(2, 1024, 8, 8, 192, 64, 0, quantization_config=models.AWQ)
    assert "E507" not in refused(odd, profile("vllm", 1))
    assert "E507" in refused(odd, profile("vllm", 2))


def test_d8_is_a_warning() -> None:
    """A slower kernel is no refusal."""
    odd = decoder(2, 1024, 8, 8, 1024 + 32, 64, 0, quantization_config={**models.AWQ, "group_size": 32})
    finding = said(odd, profile("vllm", 1))
    assert (finding.code, finding.warning) == ("W508", True)


def test_d9_state_heads() -> None:
    """Mamba's heads are shared evenly; its groups are, or there is one."""
    mamba = {"mamba_num_heads": 24, "mamba_head_dim": 64, "mamba_d_state": 128, "mamba_n_groups": 3}
    config = decoder(2, 768, 24, 24, 1024, 64, 0, **mamba, layer_types=["mamba", "full_attention"])
    assert refused(config, profile("vllm", 4)) == ["E509"]
    assert refused({**config, "mamba_n_groups": 1}, profile("vllm", 4)) == []
    assert "E509" in refused({**config, "mamba_num_heads": 6}, profile("vllm", 4))


@pytest.mark.parametrize("name", sorted(FACTS["vllm"].unstaged))
def test_d10_classes_without_stages(name: str) -> None:
    """What the engine's source says of a class; of a class that nobody looked into nothing is said."""
    config = {**models.LLAMA_8B, "architectures": [name]}
    assert refused(config, profile(pipeline_parallel=2)) == ["E510"]
    assert "no pipeline for this class" in said(config, profile(pipeline_parallel=2)).said
    assert refused(config, profile()) == []
    assert refused(config, profile("sglang", pipeline_parallel=2)) == []
    assert refused(config, profile(pipeline_parallel=2, engine_version=">=0.34")) == []
    assert refused({**config, "architectures": ["Unheard"]}, profile(pipeline_parallel=2)) == []


def test_d10_stages() -> None:
    """More stages than layers cannot be, nor a partition that leaves layers out."""
    assert refused(models.LLAMA_8B, profile(pipeline_parallel=33)) == ["E510"]
    assert refused(models.LLAMA_8B, profile(pipeline_parallel=3)) == []
    spelt = (("VLLM_PP_LAYER_PARTITION", "16,15"),)
    assert refused(models.LLAMA_8B, profile(pipeline_parallel=2, env=spelt)) == ["E510"]
    spelt = (("VLLM_PP_LAYER_PARTITION", "17,15"),)
    assert refused(models.LLAMA_8B, profile(pipeline_parallel=2, env=spelt)) == []


@pytest.mark.parametrize(
    ("config", "tensor", "size", "codes"),
    [
        (models.DEEPSEEK_V3, 8, 8, []),
        (models.DEEPSEEK_V3, 8, 3, ["E511"]),
        (models.QWEN3_30B_A3B, 8, 2, []),
        (models.QWEN3_30B_A3B, 4, 2, ["E511"]),
        (models.QWEN3_30B_A3B, 8, 4, ["E511"]),
    ],
)
def test_d11_context_parallel(config: models.Config, tensor: int, size: int, codes: list[str]) -> None:
    """Latent attention takes any divisor; grouped heads only as many ranks as hold copies."""
    args = (("decode-context-parallel-size", size),)
    assert refused(config, profile("vllm", tensor, args=args)) == codes


@pytest.mark.parametrize(
    ("config", "tensor", "args", "codes"),
    [
        (models.QWEN3_30B_A3B, 4, (("decode-context-parallel", 2),), ["E511"]),
        (models.QWEN3_30B_A3B, 4, (("dcp", "2"),), ["E511"]),
        (models.QWEN3_30B_A3B, 8, (("decode-context-par", 2),), []),
        (models.LLAMA_8B, 2, (("enable-expert", True),), ["E514"]),
        (models.LLAMA_8B, 2, (("enable-expert", False),), []),
        (models.QWEN3_235B_FP8, 8, (("enable-exp", True),), []),
        (models.QWEN3_235B_FP8, 8, (("enable-prefix-caching", True),), ["E505"]),
    ],
)
def test_a_beginning_of_a_flag_counts_as_the_flag(
    config: models.Config, tensor: int, args: tuple[tuple[str, Any], ...], codes: list[str]
) -> None:
    """The engine's parser completes it, so what it decides is decided."""
    assert refused(config, profile("vllm", tensor, args=args)) == codes


def test_of_one_flag_written_twice_the_last_counts() -> None:
    """As the engine's parser has it."""
    twice = (("decode-context-parallel", 3), ("decode-context-parallel-size", 2))
    assert refused(models.QWEN3_30B_A3B, profile("vllm", 8, args=twice)) == []
    assert refused(models.QWEN3_30B_A3B, profile("vllm", 8, args=twice[::-1])) == ["E511"]


def test_d12_is_a_warning() -> None:
    """Some engines give each rank the whole vision tower."""
    config = models.nested(models.LLAMA_8B, vision_heads=6)
    assert refused(config, profile("vllm", 4)) == ["W512"]


@pytest.mark.parametrize(
    "allowed",
    [
        {"env": (("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),)},
        {"args": (("hf-overrides", '{"rope_parameters": {}}'),)},
        {"args": (("hf-overrides.rope_parameters.factor", 4),)},
    ],
)
def test_d13_steps_back_where_somebody_means_it(allowed: dict[str, Any]) -> None:
    """Rope scaling from the command line, or a variable that permits it, makes the length theirs."""
    assert refused(models.PHI_2, profile(max_model_len=8192)) == ["E513"]
    assert refused(models.PHI_2, profile(max_model_len=8192, **allowed)) == []


def test_d13_is_a_warning_for_llama_cpp() -> None:
    """llama.cpp starts, and answers within what the model was made for."""
    assert refused(models.PHI_2, profile("llamacpp", max_model_len=8192)) == ["W513"]


def test_d14_experts() -> None:
    """Expert parallelism without experts, and more ranks than experts without it."""
    assert refused(models.LLAMA_8B, profile(args=EXPERTS)) == ["E514"]
    few = decoder(2, 1024, 16, 16, 1024, 64, 0, num_local_experts=8)
    assert "E514" in refused(few, profile("vllm", 16))
    assert "E514" not in refused(few, profile("vllm", 16, args=EXPERTS))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_what_is_unknown_excludes_nothing(engine: str) -> None:
    """Facts without a number refuse nothing, whatever the profile."""
    for ranks in (1, 3, 8, 64):
        of = profile(engine, ranks, pipeline_parallel=5, max_model_len=1 << 20, args=EXPERTS)
        assert findings(ModelFacts(), of) == []


def test_numbers_of_the_language_model_count_in_a_multimodal_one() -> None:
    """What stands one level down is what is cut."""
    inside = models.nested(models.QWEN3_14B, vision_heads=20, hidden_size=1, num_attention_heads=7)
    assert refused(inside, profile("vllm", 5)) == refused(models.QWEN3_14B, profile("vllm", 5))


def test_each_rule_says_its_own_number() -> None:
    """The list is complete and in order: D1 to D14."""
    numbers = [str(rule.__doc__).partition(":")[0] for rule in RULES]
    assert numbers == [f"D{number}" for number in range(1, 15)]


@pytest.mark.parametrize(
    ("config", "of"), [case[1:3] for case in REAL[:-1]], ids=[case[0] for case in REAL[:-1]]
)
def test_help_names_degrees_that_pass(config: models.Config, of: Profile) -> None:
    """What is offered is accepted."""
    facts = facts_of(config)
    for finding in findings(facts, of):
        offered = re.findall(r"\d+", finding.help.partition(" would do")[0])
        assert offered
        for degree in offered:
            assert findings(facts, dataclasses.replace(of, tensor_parallel=int(degree))) == []
