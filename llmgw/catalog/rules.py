"""What a rule of `divisibility` or `quantised` answers, and how a profile cuts a model: the words they share."""

import dataclasses
from collections.abc import Callable, Iterator

from llmgw.catalog import options
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Profile

TENSOR = "tensor_parallel"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One refusal: its rule, the field of the profile it is about, what is wrong with numbers, what would help."""

    rule: int
    field: str
    said: str
    help: str = ""
    warning: bool = False

    @property
    def code(self) -> str:
        return f"{'W' if self.warning else 'E'}{500 + self.rule}"


Rule = Callable[[ModelFacts, Profile], Finding | None]


def sharing(profile: Profile) -> int:
    """Ranks that share the attention heads: SGLang's data parallel ranks each have some of them whole."""
    inside = profile.data_parallel if profile.engine == "sglang" else 1
    return max(1, profile.tensor_parallel // inside)


def expert_ranks(profile: Profile) -> int:
    """Ranks that share the experts: those of vLLM's data and context parallelism have a part of them too."""
    if profile.engine != "vllm":
        return profile.tensor_parallel
    return profile.tensor_parallel * profile.data_parallel * options.prefill_ranks(profile)


def widths(facts: ModelFacts, profile: Profile) -> Iterator[tuple[str, int, int]]:
    """The intermediate sizes that are cut, and by how many ranks. Expert parallelism leaves experts whole."""
    ranks = profile.tensor_parallel
    yield "the layers", facts.dense, ranks
    if facts.experts:
        yield "the shared experts", facts.experts.shared, ranks
        if profile.engine == "vllm" and not options.expert_parallel(profile):
            yield "an expert", facts.experts.width, expert_ranks(profile)
