"""`config.json` → `ModelFacts`. Also of multimodal models, which keep the language model's numbers one level down.

Called by `transport.ranges`. Every generation of models spelt these numbers its own way: the names stand
in tuples here, the first that is given counts. What is missing or absurd is taken for unknown.
"""

from collections import ChainMap
from collections.abc import Mapping

from llmgw.catalog.config_values import Config, items, mapping, number
from llmgw.catalog.facts import Experts, Latent, ModelFacts, Quantisation, Weights
from llmgw.catalog.hf_layers import attention, recurrent

_INNER = ("text_config", "llm_config", "language_config", "language_model_config")


def facts_of(config: Config, weights: Weights | None = None) -> ModelFacts:
    """What `config` says of the model whose weights are `weights`."""
    text = language_part(config)
    experts = _experts(text)
    latent = _latent(text)
    layers = number(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    full, windowed, window = attention(text, layers)
    heads = number(text, "num_attention_heads", "n_head", "n_heads")
    hidden = number(text, "hidden_size", "n_embd", "d_model")
    vision = mapping(config, "vision_config")
    return ModelFacts(
        architecture=_architecture(config),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_size=number(text, "head_dim", "kv_channels") or (hidden // heads if heads else 0),
        vocabulary=number(text, "vocab_size", "padded_vocab_size"),
        dense=_dense(text, experts, hidden),
        longest=_longest(text),
        full=full,
        windowed=windowed,
        window=window,
        latent=latent,
        recurrent=recurrent(text, hidden),
        experts=experts,
        quantisation=_quantisation(text),
        vision_heads=number(vision, "num_heads", "num_attention_heads"),
        multimodal=bool(vision),
        tied=bool(text.get("tie_word_embeddings", False)),
        weights=weights,
    )


def language_part(config: Config) -> Config:
    """The numbers of the language model; those of the whole stand behind them where it is silent."""
    part = mapping(config, "thinker_config") or config
    inner = next((found for name in _INNER if (found := mapping(part, name))), {})
    return ChainMap(dict(inner), dict(part), dict(config))


def _architecture(config: Config) -> str:
    named = items(config, "architectures")
    return str(named[0])[:120] if named else str(config.get("model_type", ""))[:120]


def _kv_heads(text: Config, heads: int) -> int:
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    for name in ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"):
        if isinstance(text.get(name), list):
            return 0  # it differs from layer to layer
    return number(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or heads


def _latent(text: Config) -> Latent | None:
    rank, rope = number(text, "kv_lora_rank"), number(text, "qk_rope_head_dim")
    if not rank or not rope:
        return None
    return Latent(
        rank, rope, number(text, "q_lora_rank"), number(text, "qk_nope_head_dim"), number(text, "v_head_dim")
    )


def _experts(text: Config) -> Experts | None:
    count = number(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if count < 2:
        return None
    width = number(
        text, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size", "ffn_hidden_size"
    )
    always = number(text, "n_shared_experts", "num_shared_experts")
    shared = number(text, "shared_expert_intermediate_size", "shared_intermediate_size") or always * width
    return Experts(
        count, width, shared, number(text, "num_experts_per_tok", "num_experts_per_token", "moe_topk")
    )


def _dense(text: Config, experts: Experts | None, hidden: int) -> int:
    """The intermediate size of layers without experts; 0 where every layer has them."""
    width = number(
        text, "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"
    )
    if experts is None:
        return width or (4 * hidden if "n_embd" in text else 0)
    some = (
        number(text, "first_k_dense_replace")
        or items(text, "mlp_only_layers")
        or number(text, "decoder_sparse_step") > 1
        or number(text, "interleave_moe_layer_step") > 1
    )
    return width if some else 0


# Context --------------------------------------------------------------------------------------------

_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "max_seq_length",
    "seq_len",
)  # fmt: skip
_UNSCALED = frozenset({"", "default", "su", "longrope", "llama3", "mrope", "proportional"})
_ORIGINAL = frozenset({"yarn", "deepseek_yarn"})


def _longest(text: Config) -> int:
    """Tokens of context after rope scaling; 0 where no number says. What is promised beside it counts too."""
    given = [value for name in _POSITIONS if (value := number(text, name))]
    return max(_scaled(text, min(given, default=0)), number(text, "model_max_length"))


def _scaled(text: Config, longest: int) -> int:
    rope = mapping(text, "rope_scaling") or mapping(text, "rope_parameters")
    kind, factor = str(rope.get("rope_type", rope.get("type", ""))), rope.get("factor")
    if kind in _UNSCALED or not isinstance(factor, int | float) or not 1 <= factor <= 4096:
        return longest
    if "gemma3" in str(text.get("model_type", "")):
        return longest  # its positions are those after scaling
    original = number(rope, "original_max_position_embeddings") if kind in _ORIGINAL else 0
    return int((original or longest) * factor)


# Quantisation ---------------------------------------------------------------------------------------

_GROUPED = frozenset({"awq", "gptq", "auto-round", "compressed-tensors", "awq_marlin", "gptq_marlin"})


def _quantisation(text: Config) -> Quantisation | None:
    found = mapping(text, "quantization_config") or mapping(text, "compression_config")
    if not found:
        return None
    method = str(found.get("quant_method", ""))[:40].lower()
    scheme = _scheme(found)
    ignored = ("modules_to_not_convert", "ignored_layers", "ignore", "modules_to_not_quantize")
    skipped = [str(name) for key in ignored for name in items(found, key)[:20_000]]
    return Quantisation(
        method=method,
        bits=number(found, "bits", "w_bit") or number(scheme, "num_bits"),
        block=_block(found.get("weight_block_size") or scheme.get("block_structure")),
        group=(number(found, "group_size", "q_group_size") or number(scheme, "group_size"))
        if method in _GROUPED
        else 0,
        skipped=tuple(skipped),
    )


def _scheme(found: Config) -> Config:
    """The weights' scheme of the first group of a compressed-tensors model."""
    groups = [group for group in mapping(found, "config_groups").values() if isinstance(group, Mapping)]
    return mapping(groups[0], "weights") if groups else {}


def _block(value: object) -> tuple[int, int] | None:
    match value:
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
        case _:
            return None
