"""What vLLM takes besides weights and KV, by version: activations, what is outside torch, CUDA graphs.

Called by `memory`. The constants were fitted to start-up logs of vLLM 0.17 to 0.19 on H100 and hold within
0.5 GiB on A100, A6000 and L40S; they are estimates and say so on every screen.
"""

import dataclasses

from llmgw.catalog import options, versions
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.kv import activation
from llmgw.catalog.model import Profile

GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes at most."""

    tokens: int
    sequences: int


def batch(profile: Profile, card: int) -> Batch:
    """The batch of a profile, by the size of the card where it does not say: vLLM's own defaults."""
    a100 = any("A100" in kind.upper() for kind in profile.gpu_types)
    if card >= 160 * GIB:
        tokens, sequences = 16384, 1024
    elif card >= 70 * GIB and not a100:
        tokens, sequences = 8192, 1024
    else:
        tokens, sequences = 2048, 256
    return Batch(
        options.number(profile, "max-num-batched-tokens", default=tokens),
        options.number(profile, "max-num-seqs", default=sequences),
    )


def terms(facts: ModelFacts, profile: Profile, card: int) -> list[tuple[str, int]]:
    """Name and bytes of each term on one rank."""
    version = versions.newest(profile.engine_version)
    found = [
        ("activations", _activations(facts, profile, batch(profile, card), version)),
        ("outside torch", round(_outside(profile, version) * GIB)),
    ]
    if version >= (0, 21) and not options.switched_on(profile, "enforce-eager"):
        found.append(("CUDA graphs", round(graphs(facts, profile) * GIB)))
    return found


def _activations(facts: ModelFacts, profile: Profile, most: Batch, version: versions.Version) -> int:
    """The peak of one dummy step: the sampler's rows of the vocabulary, or the widest layer."""
    element = activation(facts, profile)
    row = 14.0 if version >= (0, 17) else 37.5
    sampler = row * most.sequences * facts.vocabulary + 3 * most.tokens * facts.hidden * element
    width = facts.dense or (max(facts.experts.shared, facts.experts.width) if facts.experts else 0)
    layer = most.tokens * element * (3 * width / profile.tensor_parallel + 2 * facts.hidden * 4 / element)
    extra = 0.45 * (facts.experts is not None) + 0.25 * facts.multimodal
    return round(max(sampler, layer) + extra * GIB)


def _outside(profile: Profile, version: versions.Version) -> float:
    """GiB that torch does not know of: the CUDA context and the buffers of communication."""
    ranks = profile.tensor_parallel
    if ranks == 1 and profile.pipeline_parallel > 1:
        return 0.07
    if version < (0, 18):
        return 0.13 if ranks == 1 else 0.55
    return {1: 0.25, 2: 2.07}.get(ranks, 2.15)


def graphs(facts: ModelFacts, profile: Profile) -> float:
    """GiB of captured CUDA graphs: a part of each layer, more where there are experts."""
    layers = -(-facts.layers // profile.pipeline_parallel)
    return 0.25 + 0.02 * layers + 0.75 * (facts.experts is not None)
