"""The engines that llmgw knows, by the name that profiles spell."""

from collections.abc import Mapping

from llmgw.engines.base import Adapter
from llmgw.engines.llamacpp import LlamaCpp
from llmgw.engines.sglang import Sglang
from llmgw.engines.vllm import Vllm
from llmgw.errors import Failed

ADAPTERS: Mapping[str, Adapter] = {adapter.name: adapter for adapter in (LlamaCpp(), Sglang(), Vllm())}


def adapter(name: str) -> Adapter:
    """The adapter of engine `name`. Raises Failed with the names there are."""
    if name not in ADAPTERS:
        raise Failed(f"cannot run engine {name!r}: this build knows {', '.join(sorted(ADAPTERS))}")
    return ADAPTERS[name]
