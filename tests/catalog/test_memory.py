"""The estimator: what logs of real engines say, and arithmetic that anybody can repeat."""

import dataclasses
import re
from typing import Any

import pytest

from llmgw.catalog import kv
from llmgw.catalog.facts import ModelFacts, Tensor, Weights, part_of
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.memory import GIB, Estimate, estimate, physical, weights_per_card
from llmgw.catalog.model import Profile
from llmgw.catalog.versions import newest
from llmgw.catalog.vllm_terms import batch
from tests.lab import estimate as lab
from tests.support import models


def vllm(tensor: int = 1, **more: Any) -> Profile:
    """A profile of `tensor` ranks of vLLM, on cards of which it takes nine tenths."""
    return Profile(name="p", engine="vllm", gpus_per_node=tensor, tensor_parallel=tensor, **more)


def llama(**more: Any) -> Profile:
    """A profile of llama.cpp on CPU."""
    return Profile(name="p", engine="llamacpp", **more)


def facts(config: models.Config, gib: float = 15.0) -> ModelFacts:
    """A model with so many GiB of weights."""
    return facts_of(config, Weights(round(gib * GIB)))


def found(of: ModelFacts, profile: Profile, gib: float = 79.18) -> Estimate:
    """The estimate, which there is."""
    answer = estimate(of, profile, round(gib * GIB))
    assert answer is not None
    return answer


def test_the_table_of_published_logs_holds() -> None:
    """Mean error below 1 %, never over by 0.5 GiB, what engines refused is refused, what served is not."""
    outcome = lab.run([])
    assert outcome.passed, outcome.figures
    assert outcome.effective, outcome.took_effect
    assert outcome.figures["kv_bytes_per_token_exact"] == "103/103"


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        (("max-num-seqs", 32), ("max-num-seq", 32)),
        (("kv-cache-dtype", "fp8"), ("kv-cache-d", "fp8")),
        (("decode-context-parallel-size", 2), ("decode-context-parallel", 2)),
        (("enforce-eager", True), ("enforce", True)),
        (("kv-cache-memory-bytes", 1 << 30), ("kv-cache-memory", 1 << 30)),
    ],
)
def test_a_beginning_of_a_flag_weighs_as_much(whole: tuple[str, Any], short: tuple[str, Any]) -> None:
    """The engine's parser completes it; an estimate that does not hear it is another engine's."""
    of = facts(models.QWEN3_30B_A3B)
    plain = found(of, vllm(8, engine_version=">=0.21"))
    assert found(of, vllm(8, args=(whole,), engine_version=">=0.21")) != plain
    assert found(of, vllm(8, args=(short,), engine_version=">=0.21")) == found(
        of, vllm(8, args=(whole,), engine_version=">=0.21")
    )


def test_terms_add_up() -> None:
    """The budget is the sum of what is listed and what is left, to the byte."""
    for profile in (
        vllm(),
        vllm(4),
        dataclasses.replace(vllm(2), engine="sglang"),
        llama(max_model_len=4096),
    ):
        sum_ = found(facts(models.LLAMA_8B), profile)
        assert sum(term.size for term in sum_.terms) + sum_.room == sum_.budget


@pytest.mark.parametrize(
    ("config", "profile", "bytes_"),
    [
        (models.LLAMA_8B, vllm(), 131_072),
        (models.LLAMA_8B, vllm(4), 32_768),
        (models.LLAMA_8B, vllm(16), 16_384),
        (models.LLAMA_8B, vllm(1, pipeline_parallel=2), 65_536),
        (models.LLAMA_8B, vllm(1, args=(("kv-cache-dtype", "fp8"),)), 65_536),
        (models.LLAMA_8B, vllm(1, args=(("dtype", "float32"),)), 262_144),
        (models.DEEPSEEK_V3, vllm(1), 70_272),
        (models.DEEPSEEK_V3, vllm(8), 70_272),
        (models.DEEPSEEK_V3, vllm(8, args=(("decode-context-parallel-size", 8),)), 8_784),
        (models.GEMMA3_27B, vllm(), 70 * 2 * 16 * 128 * 2),
        (models.CONFIGS["gemma-3-4b"], vllm(), 35 * 2 * 4 * 256 * 2),
        (models.GPT_OSS_120B, vllm(), 73_728),
        (models.QWEN3_NEXT, vllm(), 24_576),
        (models.QWEN3_NEXT, vllm(8), 12_288),
        (models.SCOUT, vllm(4), 49_152),
        (models.LLAMA_8B, dataclasses.replace(vllm(8, data_parallel=2), engine="sglang"), 32_768),
    ],
)
def test_bytes_of_one_token(config: models.Config, profile: Profile, bytes_: int) -> None:
    """Grouped, latent, windowed and hybrid attention: exactly what the engines allocate."""
    assert kv.layout(facts_of(config), profile).token == bytes_


def test_a_window_bounds_what_a_long_sequence_needs() -> None:
    """Half of gpt-oss's layers keep 128 tokens, whatever the sequence."""
    layout = kv.layout(facts_of(models.GPT_OSS_120B), vllm())
    assert layout.sequence(131_072, 8192) == (18 * 131_072 + 18 * (128 - 1 + 8192 + 1 + 16)) * 2048


def test_a_state_is_paid_once_a_sequence() -> None:
    """36 of Qwen3-Next's 48 layers keep a state of constant size."""
    layout = kv.layout(facts_of(models.QWEN3_NEXT), vllm())
    state = 32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128)
    assert layout.sequence(0, 0) == 36 * state * 2
    assert layout.sequence(1600, 0) == 36 * state * 2 + 1600 * 24_576


@pytest.mark.parametrize(
    ("config", "profile", "bytes_"),
    [
        (models.GPT_OSS_120B, llama(args=(("parallel", 2),)), 2 * (131_072 * 18 + 768 * 18) * 2048),
        (models.QWEN3_30B_A3B, llama(), 131_072 * 98_304),
        (models.DEEPSEEK_V3, llama(args=(("cache-type-k", "q8_0"),)), 131_072 * 37_332),
        (
            models.LLAMA_8B,
            llama(args=(("cache-type-k", "q8_0"), ("cache-type-v", "q4_0"))),
            131_072 * 32 * 1024 * 13 // 8,
        ),
    ],
)
def test_the_context_of_llama_cpp(config: models.Config, profile: Profile, bytes_: int) -> None:
    """Cells times slots; a windowed layer keeps its window and one micro-batch."""
    assert kv.llama_context(facts_of(config), profile, 131_072) == bytes_


def test_the_context_grows_by_256_cells() -> None:
    """A context of 257 tokens costs as much as one of 512."""
    model = facts_of(models.LLAMA_8B)
    assert kv.llama_context(model, llama(), 257) == kv.llama_context(model, llama(), 512)


PARTS = Weights(total=100 * GIB, embedding=10 * GIB, head=10 * GIB, copied=4 * GIB, kv=8 * GIB, experts=0)


@pytest.mark.parametrize(
    ("profile", "gib"),
    [
        (vllm(), 100),
        (vllm(4), 20 / 4 + 4 + 8 / 4 + 68 / 4),
        (vllm(16), 20 / 16 + 4 + 8 / 8 + 68 / 16),
        (vllm(1, pipeline_parallel=2), 10 + 80 / 2),
        (vllm(2, pipeline_parallel=2), 10 / 2 + (4 + 8 / 2 + 68 / 2) / 2),
    ],
)
def test_weights_of_the_fullest_card(profile: Profile, gib: float) -> None:
    """Norms are on every rank; KV projections are cut no further than there are KV heads; ends are on ends."""
    model = dataclasses.replace(facts_of(models.LLAMA_8B), weights=PARTS)
    assert weights_per_card(model, PARTS, profile) == round(gib * GIB)


@pytest.mark.parametrize(
    ("groups", "gib"),
    [
        (1, 10 / 8 + 10 / 8 + 4 + 8 / 8 + 40 / 8 + 28 / 8),
        (2, 10 + 10 / 8 + 4 + 8 / 4 + 40 / 4 + 28 / 8),
        (8, 10 + 10 / 8 + 4 + 8 + 40 + 28 / 8),
    ],
)
def test_attention_is_whole_in_each_data_parallel_group_of_sglang(groups: int, gib: float) -> None:
    """Only the ranks of a group share attention, and each rank has the embedding; the rest all ranks share."""
    # No row of the table is a run like this; the logs that are published (sglang#6017) copy experts besides.
    parts = dataclasses.replace(PARTS, attention=40 * GIB)
    model = dataclasses.replace(facts_of(models.LLAMA_8B), weights=parts)
    ranks = dataclasses.replace(vllm(8, data_parallel=groups), engine="sglang")
    assert weights_per_card(model, parts, ranks) == round(gib * GIB)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.0.self_attn.o_proj.weight", "attention"),
        ("model.layers.0.self_attn.q_b_proj.weight", "attention"),
        ("model.layers.0.self_attn.kv_b_proj.weight", "attention"),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "copied"),
        ("model.layers.0.self_attn.k_proj.weight", "kv"),
        ("blk.0.attn_output.weight", "attention"),
        ("blk.0.attn_k.weight", "kv"),
        ("model.layers.0.mlp.down_proj.weight", ""),
    ],
)
def test_where_a_tensor_goes(name: str, part: str) -> None:
    """By the names of both formats."""
    assert part_of(Tensor(name, (2, 2), 8)) == part


def test_experts_are_shared_by_all_data_parallel_ranks() -> None:
    """Attention is on each of them, experts are on one."""
    parts = Weights(total=100 * GIB, experts=80 * GIB)
    model = dataclasses.replace(facts_of(models.QWEN3_CODER_480B_FP8), weights=parts)
    assert weights_per_card(model, parts, vllm(1, data_parallel=8)) == 30 * GIB
    context = (("prefill-context-parallel", 2),)
    assert weights_per_card(model, parts, vllm(1, data_parallel=4, args=context)) == 30 * GIB


def test_the_longest_sequence_that_fits_fits_and_one_longer_does_not() -> None:
    """What is offered as a way out is one."""
    model = facts(models.LLAMA_70B, 65.7)
    sum_ = found(model, vllm(1, max_model_len=32_768))
    assert not sum_.fits
    assert 0 < sum_.longest < 32_768
    assert found(model, vllm(1, max_model_len=sum_.longest)).fits
    assert not found(model, vllm(1, max_model_len=sum_.longest + kv.BLOCK)).fits


def test_pinned_kv_leaves_the_rest_alone() -> None:
    """`kv-cache-memory-bytes` is what two engines on one card need: the share has no meaning then."""
    pinned = found(
        facts(models.LLAMA_8B), vllm(1, max_model_len=8192, args=(("kv-cache-memory-bytes", 2 * GIB),))
    )
    assert pinned.room == 2 * GIB
    assert pinned.concurrency == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", (0, 33)),
        (">=0.21", (0, 33)),
        ("==0.18.1", (0, 18)),
        (">=0.17,<0.19", (0, 18)),
        ("<=0.16", (0, 16)),
    ],
)
def test_terms_are_for_the_newest_version_that_is_permitted(text: str, version: tuple[int, int]) -> None:
    """An open range may be met by any later engine."""
    assert newest(text) == version


def test_cuda_graphs_are_in_the_budget_since_0_21() -> None:
    """Before, they came on top; eager mode has none."""
    model = facts(models.LLAMA_8B)
    names = [
        {term.name for term in found(model, profile).terms}
        for profile in (vllm(), vllm(engine_version="<0.21"), vllm(args=(("enforce-eager", True),)))
    ]
    assert ["CUDA graphs" in terms for terms in names] == [True, False, False]


def test_an_engine_older_than_any_measurement_is_not_estimated() -> None:
    """A figure that is 55 % off is worse than none."""
    assert estimate(facts(models.LLAMA_8B), vllm(engine_version="<0.9"), 80 * GIB) is None


def test_without_weights_there_is_no_estimate() -> None:
    """What is not known is not guessed."""
    assert estimate(facts_of(models.LLAMA_8B), vllm(), 80 * GIB) is None


@pytest.mark.parametrize(
    ("gib", "types", "tokens"),
    [(79, ("H100",), 8192), (79, ("*A100*",), 2048), (47, (), 2048), (180, (), 16384)],
)
def test_the_batch_follows_the_card(gib: int, types: tuple[str, ...], tokens: int) -> None:
    """The same profile has another activation peak on an A100 than on an H100 of the same size."""
    assert batch(vllm(gpu_types=types), gib * GIB).tokens == tokens


def test_a_card_sold_as_80_has_less() -> None:
    """Sums with a round number would promise a gigabyte that nobody has."""
    assert physical(80 * GIB) == physical(80 * 10**9) == round(79.18 * GIB)
    assert physical(79 * GIB + 1) == 79 * GIB + 1


def test_online_quantisation_halves_the_layers_and_not_the_ends() -> None:
    """Llama 3.1 8B was logged with 8.49 GiB under `--quantization fp8`."""
    ends = 128_256 * 4096 * 2
    parts = Weights(round(14.99 * GIB), embedding=ends, head=ends)
    model = dataclasses.replace(facts_of(models.LLAMA_8B), weights=parts)
    sum_ = found(model, vllm(args=(("quantization", "fp8"),)))
    assert sum_.terms[0].size / GIB == pytest.approx(8.49, abs=0.03)


def test_sglang_takes_its_share_of_what_is_free() -> None:
    """A log gives 0.9113 as the least share that held 125.65 GiB of weights on each of 8 H200."""
    model = facts(models.DEEPSEEK_V3, 125.65 * 8)
    least = dataclasses.replace(vllm(8), engine="sglang", max_model_len=1)
    for share, fits in ((0.90, False), (0.92, True)):
        sum_ = found(model, dataclasses.replace(least, gpu_memory_utilization=share), 139.8)
        assert sum_.fits == fits, sum_


def test_llama_cpp_says_what_it_may_take_besides() -> None:
    """Old prompts in host memory are no part of the sum, and are said."""
    assert re.search(
        "8 GiB of host memory", found(facts(models.LLAMA_8B), llama(max_model_len=4096)).notes[0]
    )
    assert not found(facts(models.LLAMA_8B), llama(max_model_len=4096, args=(("cache-ram", 0),))).notes


def test_llama_cpp_shares_layers_among_its_devices() -> None:
    """On two cards the fuller one has 17 of the 33 parts."""
    of = dataclasses.replace(facts(models.LLAMA_8B, 33.0), tied=True)
    sum_ = found(of, llama(gpus_per_node=2, max_model_len=4096), 24)
    assert sum_.terms[0].size == 17 * GIB
    assert sum_.sequence == 17 * 4096 * 4096


def test_on_cpu_every_process_is_in_the_booking() -> None:
    """Two ranks of vLLM on CPU book for both."""
    cpu = dataclasses.replace(vllm(2, max_model_len=1024), gpus_per_node=0)
    sum_ = found(facts(models.LLAMA_8B), cpu, 64)
    assert sum_.terms[0].size == 15 * GIB
    assert sum_.token == 131_072
