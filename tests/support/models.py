"""`config.json` of models that tests are about, as their publishers wrote the numbers, reduced to what decides.

Read by the tests of model facts, divisibility and memory, and by `python -m tests.lab estimate`.
"""

import json
import pathlib
import struct
from typing import Any

Config = dict[str, Any]


def decoder(
    layers: int, hidden: int, heads: int, kv: int, width: int, vocabulary: int, longest: int, **more: Any
) -> Config:
    """The config of a plain decoder, with `more` over it."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "max_position_embeddings": longest,
        "torch_dtype": "bfloat16",
        **more,
    }


def nested(text: Config, vision_heads: int = 16, **more: Any) -> Config:
    """A multimodal model around the language model `text`."""
    return {"vision_config": {"num_attention_heads": vision_heads}, "text_config": text, **more}


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
W8A8 = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}
_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
_V3 = {
    **_LATENT, "q_lora_rank": 1536, "n_routed_experts": 256, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}  # fmt: skip
_LITE = {
    **_LATENT,
    "n_routed_experts": 64,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
_GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "sliding_window": 1024, "sliding_window_pattern": 6}
_SHARED = {"num_experts": 60, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
_GPT_OSS = {"sliding_window": 128, "head_dim": 64, "quantization_config": {"quant_method": "mxfp4"}}

LLAMA_8B = decoder(32, 4096, 32, 8, 14336, 128256, 131072, rope_scaling=_LLAMA3)
LLAMA_70B = decoder(80, 8192, 64, 8, 28672, 128256, 131072, rope_scaling=_LLAMA3)
QWEN25_7B = decoder(28, 3584, 28, 4, 18944, 152064, 32768, sliding_window=131072, use_sliding_window=False)
QWEN25_72B = decoder(80, 8192, 64, 8, 29568, 152064, 32768)
QWEN3_14B = decoder(40, 5120, 40, 8, 17408, 151936, 40960, head_dim=128)
QWEN3_30B_A3B = decoder(
    48, 2048, 32, 4, 6144, 151936, 40960, head_dim=128, num_experts=128, moe_intermediate_size=768,
    num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip
QWEN3_235B_FP8 = decoder(
    94, 4096, 64, 4, 12288, 151936, 40960, head_dim=128, num_experts=128, moe_intermediate_size=1536,
    num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[], quantization_config=FP8,
)  # fmt: skip
# Of the next two the widths that decided are published; the rest only has to divide.
QWEN36_35B_FP8 = decoder(
    40, 2048, 16, 8, 0, 248320, 262144, head_dim=256, num_experts=256, moe_intermediate_size=512,
    shared_expert_intermediate_size=512, num_experts_per_tok=8, quantization_config=FP8,
)  # fmt: skip
MINIMAX_M2_FP8 = decoder(
    62, 3072, 48, 8, 1536, 200064, 196608, head_dim=128, num_local_experts=256, num_experts_per_tok=8,
    quantization_config=FP8,
)  # fmt: skip
DEEPSEEK_V3 = decoder(61, 7168, 128, 128, 18432, 129280, 163840, **_V3, quantization_config=FP8)
# Only the width of its experts is its own here: that is what decided.
DEEPSEEK_V4_PRO = {**DEEPSEEK_V3, "moe_intermediate_size": 3072}
QWEN25_VL_72B_AWQ = decoder(
    80, 8192, 64, 8, 29568, 152064, 128000, vision_config={"num_heads": 16}, quantization_config=AWQ
)
GRANITE = decoder(40, 4096, 32, 8, 12800, 49155, 131072)
PHI_2 = decoder(32, 2560, 32, 32, 10240, 51200, 2048)
QWEN3_NEXT = decoder(
    48, 2048, 16, 2, 5120, 151936, 262144, head_dim=256, num_experts=512, moe_intermediate_size=512,
    shared_expert_intermediate_size=512, num_experts_per_tok=10, decoder_sparse_step=1, full_attention_interval=4,
    linear_num_value_heads=32, linear_num_key_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
)  # fmt: skip
GEMMA3_27B = nested({**decoder(62, 5376, 32, 16, 21504, 262208, 131072), **_GEMMA3, "head_dim": 128})
GPT_OSS_120B = decoder(
    36, 2880, 64, 8, 2880, 201088, 131072, **_GPT_OSS, num_local_experts=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
)  # fmt: skip
GPT_OSS_20B = decoder(
    24, 2880, 64, 8, 2880, 201088, 131072, **_GPT_OSS, num_local_experts=32,
    layer_types=["sliding_attention", "full_attention"] * 12,
)  # fmt: skip
SCOUT = nested(
    decoder(
        48,
        5120,
        40,
        8,
        8192,
        202048,
        10485760,
        head_dim=128,
        num_local_experts=16,
        num_experts_per_tok=1,
        intermediate_size_mlp=16384,
        interleave_moe_layer_step=1,
        attention_chunk_size=8192,
    )
)
QWEN3_CODER_480B_FP8 = decoder(
    62, 6144, 96, 8, 8192, 151936, 262144, head_dim=128, num_experts=160, moe_intermediate_size=2560,
    decoder_sparse_step=1, mlp_only_layers=[], quantization_config=FP8,
)  # fmt: skip
MISTRAL_SMALL = nested(decoder(40, 5120, 32, 8, 32768, 131072, 131072, head_dim=128))

CONFIGS: dict[str, Config] = {
    "CodeLlama-34b": decoder(48, 8192, 64, 8, 22016, 32000, 16384),
    "CodeLlama-7b": decoder(32, 4096, 32, 32, 11008, 32016, 16384),
    "Llama-2-7B": decoder(32, 4096, 32, 32, 11008, 32000, 4096),
    "DeepSeek-V2-Lite": decoder(27, 2048, 16, 16, 10944, 102400, 163840, **_LITE),
    "Kimi-VL-A3B": nested(decoder(27, 2048, 16, 16, 11264, 163840, 131072, **_LITE)),
    "DeepSeek-R1-Distill-Qwen-14B": decoder(48, 5120, 40, 8, 13824, 152064, 131072),
    "DeepSeek-R1": DEEPSEEK_V3,
    "DeepSeek-V4-Pro": DEEPSEEK_V4_PRO,
    "Kimi-K2": decoder(61, 7168, 64, 64, 18432, 163840, 262144, **{**_V3, "n_routed_experts": 384}),
    "Llama-3.3-70B": LLAMA_70B,
    "Llama-3.1-70B": LLAMA_70B,
    "Llama-3.1-8B": LLAMA_8B,
    "Llama-3-8B": LLAMA_8B,
    "Llama-3.1-405B": decoder(126, 16384, 128, 8, 53248, 128256, 131072, rope_scaling=_LLAMA3),
    "Llama-4-Scout": SCOUT,
    "Qwen2.5-7B": QWEN25_7B,
    "Qwen2.5-72B": QWEN25_72B,
    "Kimi-Dev-72B": {**QWEN25_72B, "max_position_embeddings": 131072},
    "Qwen1.5-MoE": decoder(24, 2048, 16, 16, 5632, 151936, 8192, **_SHARED, decoder_sparse_step=1),
    "Qwen3-0.6B": decoder(28, 1024, 16, 8, 3072, 151936, 40960, head_dim=128, tie_word_embeddings=True),
    "Qwen3-8B": decoder(36, 4096, 32, 8, 12288, 151936, 40960, head_dim=128),
    "Qwen3-14B": QWEN3_14B,
    "Qwen3-32B": decoder(64, 5120, 64, 8, 25600, 151936, 40960, head_dim=128),
    "Qwen3-30B-A3B": QWEN3_30B_A3B,
    "Qwen3-235B": QWEN3_235B_FP8,
    "Qwen3-Coder-480B": QWEN3_CODER_480B_FP8,
    "Qwen3-Next-80B": QWEN3_NEXT,
    "gemma-2-27b": decoder(
        46, 4608, 32, 16, 36864, 256000, 8192, model_type="gemma2", head_dim=128, sliding_window=4096
    ),
    "gemma-2-9b": decoder(
        42, 3584, 16, 8, 14336, 256000, 8192, model_type="gemma2", head_dim=256, sliding_window=4096
    ),
    "gemma-2-2b": decoder(
        26, 2304, 8, 4, 9216, 256000, 8192, model_type="gemma2", head_dim=256, sliding_window=4096
    ),
    "gemma-3-12b": nested({**decoder(48, 3840, 16, 8, 15360, 262208, 131072), **_GEMMA3}),
    "gemma-3-4b": nested({**decoder(34, 2560, 8, 4, 10240, 262208, 131072), **_GEMMA3}),
    "gemma-7b": decoder(28, 3072, 16, 16, 24576, 256000, 8192, head_dim=256),
    "granite-3.1-2b": decoder(40, 2048, 32, 8, 8192, 49155, 131072),
    "granite-vision-3.3-2b": nested(decoder(40, 2048, 32, 8, 8192, 49156, 131072)),
    "granite-3": GRANITE,
    "phi-2": PHI_2,
    "phi-4": decoder(40, 5120, 40, 10, 17920, 100352, 16384),
    "Mistral-Small-3": MISTRAL_SMALL,
    "gpt-oss-20b": GPT_OSS_20B,
    "gpt-oss-120b": GPT_OSS_120B,
}
"""Part of a model's name → its config. The first part that a name holds is meant."""


def config(model: str) -> Config | None:
    """The config of the model called `model`, if it is one of these."""
    return next((found for part, found in CONFIGS.items() if part in model), None)


def write(path: pathlib.Path, config: Config, gib: int) -> None:
    """A model directory whose header promises so many GiB."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    listed = {"w": {"dtype": "BF16", "shape": [gib, 1 << 29], "data_offsets": [0, gib << 30]}}
    header = json.dumps(listed).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
