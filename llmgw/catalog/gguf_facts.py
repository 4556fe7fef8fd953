"""GGUF header → `ModelFacts`: the same numbers as in config.json, under llama.cpp's names.

Called by `transport.ranges` with the header that `gguf` parsed.
"""

from llmgw.catalog.facts import Experts, Latent, ModelFacts, Quantisation, Recurrent, Unusable, weigh
from llmgw.catalog.gguf import Header


def facts_of(header: Header) -> ModelFacts:
    """What `header` says. Raises Unusable where it names no architecture."""
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise Unusable("this GGUF file names no architecture")
    of = _Of(header, architecture)
    layers, hidden, heads = (
        of.number("block_count"),
        of.number("embedding_length"),
        of.number("attention.head_count"),
    )
    kept = of.kept(layers)
    windowed, window = of.windowed(len(kept) or layers)
    tied = "output.weight" not in header.tensors
    return ModelFacts(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(kept, default=0) or of.number("attention.head_count_kv") or heads,
        head_size=of.number("attention.key_length") or (hidden // heads if heads else 0),
        vocabulary=of.number("vocab_size") or header.lengths.get("tokenizer.ggml.tokens", 0),
        dense=of.number("feed_forward_length"),
        longest=of.number("context_length"),
        full=of.full(len(kept) or layers) - windowed,
        windowed=windowed,
        window=window,
        latent=of.latent(),
        recurrent=of.recurrent(),
        experts=of.experts(),
        quantisation=Quantisation("gguf"),
        tied=tied,
        weights=weigh(header.tensors, tied=False),
    )


class _Of:
    """The metadata below one architecture's name."""

    def __init__(self, header: Header, architecture: str) -> None:
        self._metadata, self._prefix = header.metadata, f"{architecture}."

    def number(self, name: str) -> int:
        """A positive number, or the largest of a list of them; 0 where there is none."""
        value = self._metadata.get(self._prefix + name)
        if isinstance(value, tuple):
            value = max((item for item in value if type(item) is int), default=0)
        return value if type(value) is int and 0 < value < 1 << 40 else 0

    def kept(self, layers: int) -> tuple[int, ...]:
        """KV heads of each layer that keeps any, where the file says it layer by layer."""
        value = self._metadata.get(self._prefix + "attention.head_count_kv")
        if not isinstance(value, tuple):
            return ()
        return tuple(item for item in value[:layers] if type(item) is int and item > 0)

    def full(self, layers: int) -> int:
        """Layers that keep keys and values at all."""
        every = self.number("full_attention_interval")
        return layers // every if every else layers

    def windowed(self, layers: int) -> tuple[int, int]:
        """Layers that keep a window, and its tokens."""
        window = self.number("attention.sliding_window")
        every = self._metadata.get(self._prefix + "attention.sliding_window_pattern")
        if not window:
            return 0, 0
        if isinstance(every, tuple):
            return sum(bool(item) for item in every[:layers]), window
        known = {"gemma2.": 2, "gemma3.": 6, "gpt-oss.": 2, "cohere2.": 4, "llama4.": 4}
        period = every if type(every) is int and every > 0 else known.get(self._prefix, 0)
        # An architecture that is not listed runs without windows: llama.cpp keeps everything then.
        return (layers - layers // period, window) if period else (0, 0)

    def latent(self) -> Latent | None:
        rank, rope = self.number("attention.kv_lora_rank"), self.number("rope.dimension_count")
        return Latent(rank, rope, self.number("attention.q_lora_rank")) if rank and rope else None

    def experts(self) -> Experts | None:
        count = self.number("expert_count")
        if count < 2:
            return None
        width = self.number("expert_feed_forward_length") or self.number("feed_forward_length")
        return Experts(
            count, width, self.number("expert_shared_feed_forward_length"), self.number("expert_used_count")
        )

    def recurrent(self) -> Recurrent | None:
        inner, size = self.number("ssm.inner_size"), self.number("ssm.state_size")
        if not inner or not size:
            return None
        groups, kernel = self.number("ssm.group_count") or 1, self.number("ssm.conv_kernel") or 4
        state = inner * size
        return Recurrent(
            self.number("ssm.time_step_rank"), groups, state, (kernel - 1) * (inner + 2 * groups * size)
        )
