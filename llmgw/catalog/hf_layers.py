"""Layers of a config.json by what they keep of a sequence: all of it, a window, or a state of constant size.

Called by `hf_config`. Families say it by lists, by intervals, by patterns, or by their name alone.
"""

from llmgw.catalog.config_values import Config, items, number
from llmgw.catalog.facts import Recurrent

_FULL = frozenset({"full_attention", "attention", "hybrid", "global_attention", "full", "*"})
_WINDOWED = frozenset({"sliding_attention", "chunked_attention", "local_attention", "sliding"})


def attention(text: Config, layers: int) -> tuple[int, int, int]:
    """Layers that keep everything, layers that keep a window, and the window in tokens."""
    window = number(text, "sliding_window", "attention_chunk_size", "sliding_window_size")
    kinds = items(text, "layer_types") or items(text, "layers_block_type") or list(_pattern(text))
    if kinds:
        full = sum(kind in _FULL for kind in kinds if isinstance(kind, str))
        windowed = sum(kind in _WINDOWED for kind in kinds if isinstance(kind, str))
        return (full, windowed, window) if window else (full + windowed, 0, 0)
    full = _full_layers(text, layers, window)
    if recurrent(text, 0) is not None or not window:
        return full, 0, 0
    windowed = max(0, layers - full)
    return full, windowed, window if windowed else 0


def _pattern(text: Config) -> str:
    """NemotronH's letter a layer: `*` is attention, `M` a state, `-` neither."""
    value = text.get("hybrid_override_pattern")
    return value if isinstance(value, str) and len(value) < 4096 else ""


def _full_layers(text: Config, layers: int, window: int) -> int:
    """Layers that attend to everything, where no list names them."""
    every = number(text, "full_attention_interval", "attn_layer_period")
    if every:
        return layers // every
    if items(text, "attn_layer_indices"):
        return len(items(text, "attn_layer_indices"))
    if not window or text.get("use_sliding_window") is False:
        return layers
    if "max_window_layers" in text:
        return layers  # Qwen2's half-windowed form, which engines do not run as such
    return _windowed_family(text, layers)


def _windowed_family(text: Config, layers: int) -> int:
    named = items(text, "no_rope_layers")
    if named:
        return sum(value == 0 for value in named)
    if number(text, "attention_chunk_size"):
        return layers // (number(text, "no_rope_layer_interval") or 4)
    if number(text, "sliding_window_pattern"):
        return layers // number(text, "sliding_window_pattern")
    known = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4}
    return layers // known[kind] if (kind := str(text.get("model_type", ""))) in known else 0


def recurrent(text: Config, hidden: int) -> Recurrent | None:
    """The layers that keep a state: a gated delta net's, or Mamba's."""
    values = number(text, "linear_num_value_heads")
    if values:
        return _delta_net(text, values)
    heads = number(text, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    size = number(text, "mamba_d_state", "ssm_state_size", "mamba_state_size")
    if not heads and not size:
        return None
    groups = number(text, "mamba_n_groups", "mamba_ngroups", "n_groups") or 1
    head = number(text, "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    kernel = number(text, "mamba_d_conv", "conv_kernel", "mamba_conv_kernel") or 4
    inner = heads * head or (number(text, "mamba_expand") or 2) * hidden
    shared = 2 * groups * size if heads else 0
    return Recurrent(heads, groups, inner * size, (kernel - 1) * (inner + shared))


def _delta_net(text: Config, values: int) -> Recurrent:
    keys = number(text, "linear_num_key_heads") or values
    key, value = number(text, "linear_key_head_dim"), number(text, "linear_value_head_dim")
    kernel = number(text, "linear_conv_kernel_dim") or 4
    return Recurrent(values, keys, values * key * value, (kernel - 1) * (2 * keys * key + values * value))
