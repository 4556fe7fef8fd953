"""What an engine would refuse about a model and a profile, before it is started: rules D1-D14, one function each.

Called by `model_checks` for every profile of a model, and by `llmgw fit`. A rule answers with a `Finding` or
None; a number that the facts do not have lets everything pass. A code is E5 or W5 and the rule's number.

    D1 heads      D2 KV heads    D3 vocabulary   D4 FFN          D5 FP8 blocks    D6 SGLang's experts
    D7 groups     D8 Marlin      D9 Mamba heads  D10 pipeline    D11 DCP          D12 vision heads
    D13 context   D14 experts
"""

import dataclasses
from collections.abc import Sequence

from llmgw.catalog import options, quantised, versions
from llmgw.catalog.engine_facts import FACTS
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Profile
from llmgw.catalog.rules import TENSOR, Finding, Rule, sharing, widths


def attention_heads(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D1: every rank has the same number of attention heads."""
    ranks = sharing(profile)
    if facts.heads % ranks == 0:
        return None
    return Finding(1, TENSOR, f"{facts.heads} attention heads cannot be shared evenly by {ranks} ranks")


def kv_heads(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D2: ranks share the KV heads evenly, or KV heads share the ranks evenly."""
    ranks, heads = sharing(profile), facts.kv_heads
    if facts.latent or not heads or heads % ranks == 0 or ranks % heads == 0:
        return None
    return Finding(2, TENSOR, f"{heads} KV heads and {ranks} ranks: neither number divides the other")


def vocabulary(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D3: the vocabulary, padded to a multiple of 64, is cut into equal parts (SGLang pads as it needs)."""
    padded = padded_vocabulary(facts)
    if profile.engine != "vllm" or padded % profile.tensor_parallel == 0:
        return None
    said = f"the vocabulary, {facts.vocabulary} padded to {padded}, is not divisible by {profile.tensor_parallel}"
    return Finding(3, TENSOR, said)


def padded_vocabulary(facts: ModelFacts) -> int:
    """Rows of the embedding as engines lay it out."""
    return -(-facts.vocabulary // 64) * 64


def ffn(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D4: the intermediate size of every layer is cut into equal parts."""
    for name, width, ranks in widths(facts, profile):
        if width % ranks:
            return Finding(
                4, TENSOR, f"the intermediate size of {name}, {width}, is not divisible by {ranks}"
            )
    return None


def state_heads(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D9: state-space heads are shared evenly; their groups too, unless there is one."""
    found, ranks = facts.recurrent, profile.tensor_parallel
    if found is None or not found.heads:
        return None
    if found.heads % ranks:
        return Finding(9, TENSOR, f"{found.heads} state-space heads cannot be shared evenly by {ranks} ranks")
    if found.groups > 1 and found.groups % ranks:
        return Finding(
            9, TENSOR, f"{found.groups} groups of state-space heads cannot be shared evenly by {ranks} ranks"
        )
    return None


def stages(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D10: each pipeline stage has a layer; a partition that is spelt out adds up; the class can be cut at all.

    A class that nobody looked into, and an engine newer than those that were read, are not refused.
    """
    count, layers = profile.pipeline_parallel, facts.layers
    read = versions.oldest(profile.engine_version) <= versions.NEWEST
    if count > 1 and read and facts.architecture in FACTS[profile.engine].unstaged:
        said = f"{facts.architecture} cannot be cut into {count} stages: the engine has no pipeline for this class"
        return Finding(10, "pipeline_parallel", said, "set pipeline_parallel: 1")
    if not layers:
        return None
    if count > layers:
        return Finding(10, "pipeline_parallel", f"{layers} layers cannot make {count} stages")
    spelt = dict(profile.env).get("VLLM_PP_LAYER_PARTITION", "")
    parts = [int(part) for part in spelt.split(",") if part.strip().isdecimal()]
    if spelt and (len(parts) != count or sum(parts) != layers):
        said = f"VLLM_PP_LAYER_PARTITION {spelt} makes {len(parts)} stages of {sum(parts)} layers, not {count} of {layers}"
        return Finding(10, "env", said)
    return None


def context_parallel(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D11: decode context parallelism uses ranks that would hold copies of the same KV heads."""
    size = options.number(profile, "decode-context-parallel-size", default=1)
    ranks = profile.tensor_parallel
    if profile.engine != "vllm" or size == 1:
        return None
    if ranks % size:
        return Finding(
            11, "args", f"decode-context-parallel-size {size} does not divide tensor_parallel {ranks}"
        )
    if facts.latent or not facts.kv_heads:
        return None
    if ranks <= facts.kv_heads or size > ranks // facts.kv_heads:
        most = max(1, ranks // facts.kv_heads)
        said = f"{facts.kv_heads} KV heads on {ranks} ranks allow decode-context-parallel-size {most}, {size} is asked for"
        return Finding(11, "args", said)
    if facts.heads // facts.kv_heads % size:
        said = f"{facts.heads // facts.kv_heads} heads per KV head are not divisible by decode-context-parallel-size {size}"
        return Finding(11, "args", said)
    return None


def vision_heads(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D12: the heads of the vision tower too, though some engines give each rank all of them."""
    ranks = profile.tensor_parallel
    if not facts.vision_heads or facts.vision_heads % ranks == 0:
        return None
    said = f"{facts.vision_heads} heads of the vision tower cannot be shared evenly by {ranks} ranks"
    return Finding(12, TENSOR, said, "check it with the engine, or use fewer ranks", warning=True)


_LONGER = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


def context(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D13: no more context than the model was made for. llama.cpp serves what it was made for, and says so."""
    wanted, longest = profile.max_model_len, facts.longest
    if (
        not longest
        or wanted <= longest
        or options.given(profile, "hf-overrides", "rope-scaling", "json-model-override-args")
    ):
        return None
    if any(name in _LONGER and value.lower() in ("1", "true") for name, value in profile.env):
        return None
    said = f"max_model_len {wanted} is more than the {longest} tokens that the model was made for"
    return Finding(
        13, "max_model_len", said, f"set max_model_len: {longest}", warning=profile.engine == "llamacpp"
    )


def expert_count(facts: ModelFacts, profile: Profile) -> Finding | None:
    """D14: expert parallelism needs experts, and tensor parallelism without it no more ranks than experts."""
    wanted = options.expert_parallel(profile)
    if facts.experts is None:
        if wanted and facts.layers:
            return Finding(
                14, "args", "enable-expert-parallel is set, but the model has no experts", "remove it"
            )
        return None
    count, ranks = facts.experts.count, profile.tensor_parallel
    if wanted or ranks <= count:
        return None
    return Finding(14, TENSOR, f"{ranks} ranks are more than the model's {count} experts")


RULES: Sequence[Rule] = (
    attention_heads,
    kv_heads,
    vocabulary,
    ffn,
    quantised.fp8_blocks,
    quantised.sglang_experts,
    quantised.groups,
    quantised.marlin,
    state_heads,
    stages,
    context_parallel,
    vision_heads,
    context,
    expert_count,
)
_UNSPLIT: Sequence[Rule] = (context,)
"""llama.cpp gives whole layers to each device: only the context can be wrong."""


def findings(facts: ModelFacts, profile: Profile) -> list[Finding]:
    """Everything that the engine of `profile` would refuse about this model, with what would do."""
    rules = _UNSPLIT if profile.engine == "llamacpp" else RULES
    found = [finding for rule in rules if (finding := rule(facts, profile)) is not None]
    return [_with_degrees(finding, facts, profile) for finding in found]


def _with_degrees(finding: Finding, facts: ModelFacts, profile: Profile) -> Finding:
    """The finding with the degrees of tensor parallelism that no rule refuses."""
    if finding.field != TENSOR or finding.warning:
        return finding
    fine = [ranks for ranks in (1, 2, 4, 8, 16, 32) if not _refused(facts, _with(profile, ranks))]
    if not fine:
        return dataclasses.replace(finding, help=finding.help.removeprefix("or "))
    named = (
        f"tensor_parallel {', '.join(map(str, fine[:-1]))} or {fine[-1]}"
        if fine[1:]
        else f"tensor_parallel {fine[0]}"
    )
    return dataclasses.replace(finding, help="; ".join(filter(None, (f"{named} would do", finding.help))))


def _with(profile: Profile, ranks: int) -> Profile:
    return dataclasses.replace(profile, tensor_parallel=ranks)


def _refused(facts: ModelFacts, profile: Profile) -> bool:
    found = (rule(facts, profile) for rule in RULES)
    return any(finding is not None and not finding.warning and finding.field == TENSOR for finding in found)
