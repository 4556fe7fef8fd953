"""Bytes that a model keeps of every token, exactly: per rank of vLLM and SGLang, per context of llama.cpp.

Called by `memory`. Layers keep keys and values of all tokens, of the last `window` of them, or a state of
constant size per sequence; latent attention keeps one row that ranks do not share.
"""

import dataclasses

from llmgw.catalog import options
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Profile

BLOCK = 16
"""Tokens of one block of vLLM's and SGLang's cache."""
CELLS = 256
"""Cells by which llama.cpp grows a context."""

_LLAMA_BITS = {
    "f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "q4_0": 4.5, "iq4_nl": 4.5,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Layers as one rank's cache has them, after vLLM made groups of equal size of two kinds.

    `row` = bytes of one token in one layer.
    """

    full: int
    windowed: int
    window: int
    row: float
    state: int

    @property
    def token(self) -> int:
        """Bytes of one token as long as it is in every window."""
        return round((self.full + self.windowed) * self.row)

    def sequence(self, length: int, batched: int) -> int:
        """Bytes of one sequence of `length` tokens, of which `batched` are computed at a time."""
        whole = _up(length, BLOCK)
        near = min(whole, _up(self.window - 1 + batched, BLOCK) + BLOCK) if self.windowed else 0
        return round((self.full * whole + self.windowed * near) * self.row) + self.state


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def layout(facts: ModelFacts, profile: Profile) -> Layout:
    """The cache of the rank that has most layers."""
    full, windowed = _grouped(facts.full, facts.windowed)
    stages = profile.pipeline_parallel
    return Layout(
        full=-(-full // stages),
        windowed=-(-windowed // stages),
        window=facts.window,
        row=_row(facts, profile) / options.number(profile, "decode-context-parallel-size", default=1),
        state=_state(facts, profile),
    )


def _grouped(full: int, windowed: int) -> tuple[int, int]:
    """Both kinds, each rounded up to a multiple of the smaller one's count."""
    size = min(full, windowed)
    return (_up(full, size), _up(windowed, size)) if size else (full, windowed)


def _row(facts: ModelFacts, profile: Profile) -> float:
    ranks = profile.tensor_parallel
    if profile.engine == "sglang":
        ranks = max(1, ranks // profile.data_parallel)
    if facts.latent:
        return (facts.latent.kv_rank + facts.latent.rope) * _element(facts, profile)
    return 2 * max(1, facts.kv_heads // ranks) * facts.head_size * _element(facts, profile)


def _element(facts: ModelFacts, profile: Profile) -> int:
    """Bytes of one number of the cache."""
    kind = options.word(profile, "kv-cache-dtype")
    if kind.startswith(("fp8", "int8")):
        return 1
    return 2 if kind in ("bfloat16", "float16", "half") else activation(facts, profile)


def activation(facts: ModelFacts, profile: Profile) -> int:
    """Bytes of one number while computing."""
    return 4 if options.word(profile, "dtype") in ("float32", "float") else facts.element


def _state(facts: ModelFacts, profile: Profile) -> int:
    """Bytes of the constant part of one sequence."""
    if facts.recurrent is None:
        return 0
    layers = -(-facts.stateful // profile.pipeline_parallel)
    elements = facts.recurrent.state + facts.recurrent.convolution
    return layers * elements * activation(facts, profile) // profile.tensor_parallel


def llama_context(facts: ModelFacts, profile: Profile, length: int) -> int:
    """Bytes of llama.cpp's context when each of its slots has `length` tokens."""
    slots = options.number(profile, "parallel", default=1)
    cells = _up(length, CELLS)
    near = min(cells, _up(facts.window + options.number(profile, "ubatch-size", default=512), CELLS))
    if options.switched_on(profile, "swa-full"):
        near = cells
    each = _llama_row(facts, profile) * (facts.full * cells + facts.windowed * near)
    state = facts.recurrent
    constant = 4 * facts.stateful * (state.state + state.convolution) if state else 0
    return round(slots * (each + constant))


def _llama_row(facts: ModelFacts, profile: Profile) -> float:
    """Bytes of one cell in one layer."""
    keys = _LLAMA_BITS.get(options.word(profile, "cache-type-k", default="f16"), 16.0) / 8
    values = _LLAMA_BITS.get(options.word(profile, "cache-type-v", default="f16"), 16.0) / 8
    if facts.latent:
        return (facts.latent.kv_rank + facts.latent.rope) * keys
    return facts.kv_heads * facts.head_size * (keys + values)
