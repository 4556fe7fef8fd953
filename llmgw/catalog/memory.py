"""Whether a model fits on the cards (or the booked memory) of a profile: a sum of terms, and what is left for KV.

Called by `llmgw fit`, by `model_checks` and by `python -m tests.lab estimate`. Weights and KV bytes are
exact; the other terms are an engine version's, measured once and named `estimate`. All sizes in bytes, of
the one rank that needs most.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from llmgw.catalog import kv, options, versions
from llmgw.catalog.facts import ModelFacts, Weights
from llmgw.catalog.model import Profile
from llmgw.catalog.rules import expert_ranks, sharing
from llmgw.catalog.vllm_terms import batch, terms

GIB = 1 << 30
_FARTHEST = 1 << 24
"""Tokens beyond which nobody asks."""


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """One part of the sum."""

    name: str
    size: int
    basis: Literal["exact", "estimate"] = "estimate"


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """The sum for one rank: `budget` = `card` × `share` = `terms` + `room`; `room` is what is left for KV.

    `sequence` = KV bytes of one sequence of `length` tokens (of all slots for llama.cpp); `token` = of one
    token. `longest` = tokens of the longest sequence that fits; 0 where none does.
    """

    card: int
    share: float
    budget: int
    terms: tuple[Term, ...]
    room: int
    token: int
    sequence: int
    length: int
    longest: int
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.short <= 0

    @property
    def short(self) -> int:
        """Bytes that are missing for one sequence; 0 or less where it fits."""
        return self.sequence - self.room

    @property
    def concurrency(self) -> float:
        """How many sequences of `length` tokens there is room for at a time."""
        return self.room / self.sequence if self.sequence and self.room > 0 else 0.0


_SOLD = {24: 23.55, 40: 39.49, 48: 44.42, 80: 79.18, 94: 93.0, 141: 139.8}
"""GiB or GB that cards are sold as → GiB that an engine finds on the smallest of them."""
SOLD_AS = min((found - 0.005) / sold for sold, found in _SOLD.items())
"""The least part of what a card is sold as that any reports (these figures have two digits): `gpu.memory` is as sold."""


def physical(size: int) -> int:
    """What an engine finds on a card that is sold as `size` bytes; a size nobody sells is taken as it is."""
    for unit in (GIB, 10**9):
        found = _SOLD.get(size // unit) if size % unit == 0 else None
        if found is not None:
            return round(found * GIB)
    return size


def estimate(facts: ModelFacts, profile: Profile, card: int) -> Estimate | None:
    """The sum on a card of `card` bytes (of booked memory where the profile is on CPU).

    None where the facts do not say enough: no weights, no layers, or an engine older than anything measured.
    """
    if facts.weights is None or not (facts.layers and facts.kept and (facts.kv_heads or facts.latent)):
        return None
    if profile.engine == "vllm" and versions.newest(profile.engine_version) < (0, 9):
        return None
    if profile.engine == "llamacpp":
        return _llamacpp(facts, facts.weights, profile, card)
    if not profile.gpus_per_node:
        return _on_cpu(facts, facts.weights, profile, card)
    return (_vllm if profile.engine == "vllm" else _sglang)(facts, facts.weights, profile, card)


def weights_per_card(facts: ModelFacts, weights: Weights, profile: Profile) -> int:
    """Weights on the rank that has most of them.

    Under SGLang's attention data parallelism each group of ranks has attention whole, and every rank the embedding.
    """
    ranks, stages, together = profile.tensor_parallel, profile.pipeline_parallel, sharing(profile)
    ends = (weights.embedding, weights.head or (weights.embedding if facts.tied else 0))
    attention = weights.attention / together + weights.kv / min(together, facts.kv_heads or together)
    named = (
        weights.embedding + weights.head + weights.copied + weights.kv + weights.experts + weights.attention
    )
    cut = (weights.total - named) / ranks + weights.experts / expert_ranks(profile) + attention
    embedded = ranks if together == profile.tensor_parallel else 1
    if stages == 1:
        return round(weights.copied + cut + weights.embedding / embedded + weights.head / ranks)
    return round((weights.copied + cut) / stages + max(ends[0] / embedded, ends[1] / ranks))


def _loaded(facts: ModelFacts, profile: Profile, weights: Weights) -> int:
    """Weights on a card after what the engine's own flags do to them."""
    size = weights_per_card(facts, weights, profile)
    if facts.quantisation is None and options.word(profile, "quantization").startswith("fp8"):
        plain = (weights.embedding + weights.head) // profile.tensor_parallel
        size = plain + (size - plain) // 2
    return max(0, size - options.number(profile, "cpu-offload-gb", default=0) * GIB)


# One engine after the other -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Cache:
    """Bytes of KV: of one token, and of one sequence of so many tokens."""

    token: int
    sequence: Callable[[int], int]


def _vllm(facts: ModelFacts, weights: Weights, profile: Profile, card: int) -> Estimate:
    own = [Term(name, size) for name, size in terms(facts, profile, card)]
    found = (Term("weights", _loaded(facts, profile, weights), "exact"), *own)
    pinned = options.number(profile, "kv-cache-memory-bytes", default=0)
    share = 1.0 if pinned else profile.gpu_memory_utilization
    layout, batched = kv.layout(facts, profile), batch(profile, card).tokens
    cache = _Cache(layout.token, lambda length: layout.sequence(length, batched))
    return _summed(facts, profile, card, found, cache, share=share, pinned=pinned)


def _sglang(facts: ModelFacts, weights: Weights, profile: Profile, card: int) -> Estimate:
    """SGLang takes its share of what it finds free, once the ranks have met."""
    share = profile.gpu_memory_utilization
    met = round((0.6 if profile.tensor_parallel == 1 else 2.0) * share * GIB)
    loaded = Term("weights", _loaded(facts, profile, weights), "exact")
    layout = kv.layout(dataclasses.replace(facts, full=facts.kept, windowed=0), profile)
    cache = _Cache(layout.token, lambda length: layout.sequence(length, 0))
    return _summed(facts, profile, card, (loaded, Term("outside torch", met)), cache, share=share)


def _on_cpu(facts: ModelFacts, weights: Weights, profile: Profile, card: int) -> Estimate:
    """vLLM and SGLang on CPU: every process of a shard in the memory that the shard books."""
    world = expert_ranks(profile) * profile.pipeline_parallel
    here = max(1, world // profile.nodes)
    loaded = Term("weights", here * _loaded(facts, profile, weights), "exact")
    processes = Term("processes", round((1.2 + 0.7 * here) * GIB))
    layout = kv.layout(facts, profile)
    cache = _Cache(layout.token * here, lambda length: here * layout.sequence(length, 0))
    return _summed(facts, profile, card, (loaded, processes), cache)


_OLD_PROMPTS = 8192
"""MiB of host memory in which llama-server keeps old prompts, unless it is told otherwise."""


def _llamacpp(facts: ModelFacts, weights: Weights, profile: Profile, card: int) -> Estimate:
    """llama.cpp gives whole layers to each device; the embedding stays with the host."""
    devices = max(1, profile.nodes * profile.gpus_per_node or profile.nodes - 1)
    layers, resident = facts.layers + 1, weights.total
    if profile.gpus_per_node and not facts.tied:
        resident -= weights.embedding
    here = -(-layers // devices)

    def context(length: int) -> int:
        return -(-kv.llama_context(facts, profile, length) * min(here, facts.layers) // facts.layers)

    found = (
        Term("weights", -(-resident * here // layers), "exact"),
        Term("compute buffer", _compute(facts, profile)),
        Term("process", GIB // 2 if profile.gpus_per_node else 48 << 20),
    )
    # Without a length its slots share the context that the model was made for.
    slots = options.number(profile, "parallel", default=1)
    length = profile.max_model_len or facts.longest // slots
    wanted = dataclasses.replace(profile, max_model_len=length)
    cache = _Cache(context(kv.CELLS) // kv.CELLS, context)
    return dataclasses.replace(_summed(facts, wanted, card, found, cache), notes=_prompts(profile))


def _prompts(profile: Profile) -> tuple[str, ...]:
    if options.given(profile, "cache-ram"):
        return ()
    kept = f"llama-server keeps old prompts in up to {_OLD_PROMPTS // 1024} GiB of host memory beside this"
    return (f"{kept}; args: {{cache-ram: MIB}} bounds it",)


def _compute(facts: ModelFacts, profile: Profile) -> int:
    """llama.cpp's buffer for one micro-batch: its activations and its mask; on a GPU its logits too."""
    rows = options.number(profile, "ubatch-size", default=512)
    experts = facts.experts
    width = max(facts.dense, experts.width * max(1, experts.active) if experts else 0)
    logits = facts.vocabulary if profile.gpus_per_node else 0
    mask = 2 * rows * (profile.max_model_len or facts.longest)
    return 4 * rows * max(4 * facts.hidden + 3 * width, logits) + mask


def _summed(
    facts: ModelFacts,
    profile: Profile,
    card: int,
    found: tuple[Term, ...],
    cache: _Cache,
    *,
    share: float = 1.0,
    pinned: int = 0,
) -> Estimate:
    """The estimate of these terms. `pinned` = bytes of KV that the profile asks for, whatever is left."""
    budget = math.ceil(card * share)
    left = budget - sum(term.size for term in found)
    room = min(left, pinned) if pinned else left
    length = profile.max_model_len or facts.longest
    return Estimate(
        card=card,
        share=share,
        budget=budget,
        terms=found,
        room=room,
        token=cache.token,
        sequence=cache.sequence(length),
        length=length,
        longest=_longest(room, max(facts.longest or _FARTHEST, length), cache.sequence),
    )


def _longest(room: int, most: int, sequence: Callable[[int], int]) -> int:
    """The most tokens whose sequence fits into `room`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sequence(middle) <= room else (low, middle - 1)
    return low
