"""Rules D5-D8: scales and groups of quantised weights must not be cut in two.

Called by `divisibility`, in whose list they stand. A layer's part that the checkpoint keeps plain has no
scales; where any layer's is plain, the rule is not sure and lets it pass.
"""

import dataclasses
from collections.abc import Iterator

from llmgw.catalog import options, versions
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Profile
from llmgw.catalog.rules import TENSOR, Finding, sharing, widths


@dataclasses.dataclass(frozen=True, slots=True)
class _Matrix:
    """One weight as `ranks` cut it: by its inputs (`row`), or by its outputs."""

    name: str
    length: int
    ranks: int
    row: bool = True

    @property
    def share(self) -> int:
        """Inputs or outputs of one rank."""
        return self.length // self.ranks


def _attention(facts: ModelFacts, ranks: int) -> Iterator[_Matrix]:
    """The attention weights. KV heads are never cut below one."""
    if facts.latent is not None:
        mla = facts.latent
        if mla.value:
            yield _Matrix("o_proj", facts.heads * mla.value, ranks)
        if mla.nope:
            yield _Matrix("q_b_proj", facts.heads * (mla.nope + mla.rope), ranks, row=False)
            yield _Matrix("kv_b_proj", facts.heads * (mla.nope + mla.value), ranks, row=False)
        return
    yield _Matrix("o_proj", facts.heads * facts.head_size, ranks)
    yield _Matrix("q_proj", facts.heads * facts.head_size, ranks, row=False)
    yield _Matrix("k_proj", max(facts.kv_heads, ranks) * facts.head_size, ranks, row=False)


def _matrices(facts: ModelFacts, profile: Profile) -> Iterator[_Matrix]:
    """Every quantised weight that is cut."""
    if not _plain(facts, "self_attn", "o_proj", "attn"):
        yield from _attention(facts, sharing(profile))
    for name, width, ranks in widths(facts, profile):
        parts = {
            "the layers": ("mlp", "down_proj", "down)_proj"),
            "the shared experts": ("shared_expert", "shared_experts"),
        }.get(name, ("experts",))
        if width and not _plain(facts, *parts):
            yield _Matrix(f"down_proj of {name}", width, ranks)
            yield _Matrix(f"gate_proj of {name}", width, ranks, row=False)


_ELSEWHERE = ("visual", "vision", "model.visual", "model.vision", "lm_head")


def _plain(facts: ModelFacts, *parts: str) -> bool:
    """Whether a layer's part is left out of the quantisation, in any layer: then the rule is not sure."""
    assert facts.quantisation is not None
    named = (
        name for name in facts.quantisation.skipped if not name.removeprefix("re:").startswith(_ELSEWHERE)
    )
    return any(name.rstrip(".*$").endswith(part) or f"{part}.*" in name for name in named for part in parts)


_PADS = (0, 33)
"""vLLM from which on the experts of a block-quantised model are padded instead of refused."""


def fp8_blocks(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D5: no scale of a block-quantised weight is cut in two."""
    found = facts.quantisation
    if found is None or found.block is None:
        return None
    pads = versions.oldest(profile.engine_version) >= _PADS
    for matrix in _matrices(facts, profile):
        if matrix.ranks == 1 or (pads and matrix.name.endswith("an expert")):
            continue
        block = found.block[1] if matrix.row else found.block[0]
        if matrix.share % block:
            side = f"{matrix.share} {'in' if matrix.row else 'out'}puts"
            said = f"{matrix.name} has {side} on each of {matrix.ranks} ranks, its FP8 blocks have {block}"
            return Finding(5, TENSOR, said, _padded(_apart(matrix)))
    return None


def _apart(matrix: _Matrix) -> str:
    """What would do besides fewer ranks: an expert that is not cut."""
    return "or args: {enable-expert-parallel: true}" if matrix.name.endswith("an expert") else ""


def _padded(apart: str) -> str:
    return f"{apart}, or engine_version: '>={'.'.join(map(str, _PADS))}'" if apart else ""


def sglang_experts(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D6: SGLang cuts each block-quantised expert by TP / EP, into whole blocks."""
    experts, found = facts.experts, facts.quantisation
    if profile.engine != "sglang" or experts is None or found is None or found.block is None:
        return None
    ranks, parallel = profile.tensor_parallel, options.expert_parallel_size(profile)
    if ranks % parallel:
        return Finding(6, "args", f"ep-size {parallel} does not divide tensor_parallel {ranks}")
    cut = max(1, ranks // parallel // options.number(profile, "moe-dp-size", default=1))
    block = found.block[0]
    if (
        cut == 1
        or (experts.width % cut == 0 and experts.width // cut % block == 0)
        or _plain(facts, "experts")
    ):
        return None
    said = f"an expert's intermediate size {experts.width} on {cut} ranks makes {experts.width / cut:g}, blocks have {block}"
    return Finding(
        6,
        TENSOR,
        said,
        f"or set ep-size under args so that {experts.width} / (TP / EP) is a multiple of {block}",
    )


_GROUPED = ("awq", "gptq", "auto-round", "compressed-tensors")


def groups(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D7: no group of a 4-bit weight is cut in two."""
    found = facts.quantisation
    if found is None or not found.group or not found.method.startswith(_GROUPED):
        return None
    for matrix in _matrices(facts, profile):
        if matrix.row and matrix.ranks > 1 and matrix.share % found.group:
            share = f"{matrix.share} inputs on each of {matrix.ranks} ranks"
            said = f"{matrix.name} has {share}, its groups have {found.group}"
            return Finding(7, TENSOR, said, _apart(matrix))
    return None


def marlin(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D8: the fast kernels of 4-bit weights take 128 inputs and 64 outputs at a time."""
    found = facts.quantisation
    if found is None or not found.group or not found.method.startswith(_GROUPED) or groups(facts, profile):
        return None
    for matrix in _matrices(facts, profile):
        step = 128 if matrix.row else 64
        if matrix.share % step:
            side = "in" if matrix.row else "out"
            said = f"{matrix.name} has {matrix.share} {side}puts on each rank, no multiple of {step}: the fast kernels refuse it"
            return Finding(8, TENSOR, said, warning=True)
    return None
