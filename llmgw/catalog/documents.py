"""What people write, field by field: strict, frozen, unknown keys refused.

Called by `reading` with the data of one file and by `schema` for the JSON Schema that editors use;
`resolve` turns the documents into `catalog.model`. Every description below is the text an editor
shows. Durations and sizes stay the text that people wrote; `resolve` converts them.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from llmgw.catalog.fields import (
    Argument,
    Duration,
    EnvValue,
    Flag,
    Name,
    Names,
    PositiveDuration,
    Sha256,
    Size,
    Variable,
    Versions,
    given,
)


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class ScalingDocument(_Document):
    """How many replicas there are, and what decides between the bounds."""

    min: int = Field(1, ge=0, le=10_000, description="Replicas that always run.")
    max: int = Field(
        1, ge=1, le=10_000, description="Replicas that run at most. Left out, it is `min` (at least 1)."
    )
    target_in_flight: int = Field(
        16, ge=1, le=100_000, description="Requests per replica that the number between the bounds aims at."
    )


class ModelDocument(_Document):
    """Something that clients ask for by name."""

    kind: Literal["model"] = Field(description="This document is a model.")
    name: Name = Field(description="The name clients send as `model`. Unique over all models and aliases.")
    source: str = Field(
        description="Where the weights come from: hf://ORG/NAME@REVISION[:FILE or glob], https://…, "
        "http://… (with `sha256`), or file:///… on the node (never fetched, never removed).",
        json_schema_extra={
            "pattern": "^(hf|https|http|file)://",
            "patternErrorMessage": "Write hf://ORG/NAME@REVISION, https://…, http://… or file:///…",
        },
    )
    sha256: Sha256 = Field("", description="The digest of the file that `source` names; needed for http.")
    profiles: Names = Field(
        min_length=1, description="Profiles in order of preference: the first that fits somewhere is used."
    )
    aliases: Names = Field((), description="Other names for it. Unique over all models and aliases.")
    fallbacks: Names = Field(
        (), description="Models or aliases that answer, in this order, while this one cannot. No cycles."
    )
    scaling: ScalingDocument = Field(ScalingDocument(), description="Bounds of the number of replicas.")
    protect: bool = Field(False, description="The last replica may not be stopped by an apply.")


class GpuDocument(_Document):
    """What a GPU must be to run this."""

    types: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = Field(
        (),
        description="Names of GPU types as shell patterns. Empty: any.",
        json_schema_extra={"examples": [["H100*"]]},
    )
    memory: Size = Field("", description="Memory that each GPU must have at least.")


class CpuDocument(_Document):
    """What a shard on CPU books on its node."""

    cores: float = Field(gt=0, le=4096, description="CPU cores that one shard books.")
    memory: Size = Field(description="Memory that one shard books.")


class _ProfileDocument(_Document):
    kind: Literal["profile"] = Field(description="This document is a profile.")
    name: Name = Field(description="The name that models give under `profiles`.")
    engine_version: Versions = Field(
        "", description="Versions of the engine that will do. A node that knows no version is not excluded."
    )
    nodes: int = Field(1, ge=1, le=1024, description="Machines that one replica spans.")
    gpu: GpuDocument = Field(GpuDocument(), description="Which GPUs will do.")
    cpu: Annotated[CpuDocument | None, BeforeValidator(given)] = Field(
        None, description="What one shard books on its node; needed where gpus_per_node is 0."
    )
    max_model_len: int = Field(
        0,
        ge=0,
        description="Tokens of context per request, prompt and answer together. 0: what the model has.",
    )
    node_labels: dict[str, str] = Field({}, description="Labels that a node must have, with these values.")
    args: dict[Flag, Argument] = Field(
        {},
        description="The engine's own flags, without dashes: true for a flag without a value, a list for "
        "several. Flags that llmgw sets itself are refused.",
    )
    allow_unsafe_args: bool = Field(
        False, description="Permit flags that run code or open files on the node, such as trust-remote-code."
    )
    env: dict[Variable, EnvValue] = Field(
        {}, description="Environment of the engine. No secrets; nothing that llmgw sets itself."
    )
    start_deadline: PositiveDuration = Field(
        "20m", description="From exec to ready. Fetching weights does not count."
    )
    drain: Duration = Field("2m", description="How long requests may take to finish before a stop.")


class _GpuProfileDocument(_ProfileDocument):
    gpus_per_node: int = Field(
        1,
        ge=0,
        le=64,
        description="GPUs on each node. 0: on CPU. Left out, it follows from the parallel degrees.",
    )
    tensor_parallel: int = Field(
        1, ge=1, le=1024, description="Ways a layer is split. Left out, it follows from the GPUs."
    )
    pipeline_parallel: int = Field(1, ge=1, le=1024, description="Stages the layers are divided into.")
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of each GPU's memory that the engine takes."
    )


class VllmDocument(_GpuProfileDocument):
    """How to run a model with vLLM. nodes × gpus_per_node = tensor × pipeline × data parallel."""

    engine: Literal["vllm"] = Field(description="The engine.")
    data_parallel: int = Field(
        1, ge=1, le=1024, description="Copies of the attention layers (for models of experts)."
    )
    distributed: Literal["mp", "ray"] = Field(
        "mp",
        description="What joins several nodes: mp. ray is for one node only: llmgw starts no Ray cluster.",
    )


class SglangDocument(_GpuProfileDocument):
    """How to run a model with SGLang. nodes × gpus_per_node = tensor × pipeline parallel."""

    engine: Literal["sglang"] = Field(description="The engine.")
    data_parallel: int = Field(
        1, ge=1, le=1024, description="Attention data parallel inside tensor_parallel, which it divides."
    )


class LlamacppDocument(_ProfileDocument):
    """How to run a model with llama.cpp; several nodes are joined by its RPC."""

    engine: Literal["llamacpp"] = Field(description="The engine.")
    gpus_per_node: int = Field(ge=0, le=64, description="GPUs on each node. 0: on CPU.")


ProfileDocument = Annotated[VllmDocument | SglangDocument | LlamacppDocument, Field(discriminator="engine")]
AnyProfile = VllmDocument | SglangDocument | LlamacppDocument
AnyDocument = ModelDocument | AnyProfile
CatalogDocument = Annotated[ModelDocument | ProfileDocument, Field(discriminator="kind")]

PROFILES: Mapping[str, type[AnyProfile]] = {
    "vllm": VllmDocument,
    "sglang": SglangDocument,
    "llamacpp": LlamacppDocument,
}

ORDER: tuple[str, ...] = (
    "kind", "name",
    "source", "sha256", "profiles", "aliases", "fallbacks", "scaling", "protect",
    "engine", "engine_version", "nodes", "gpus_per_node",
    "tensor_parallel", "pipeline_parallel", "data_parallel", "distributed",
    "gpu", "cpu", "gpu_memory_utilization", "max_model_len", "node_labels",
    "args", "allow_unsafe_args", "env", "start_deadline", "drain",
    "min", "max", "target_in_flight", "types", "cores", "memory",
)  # fmt: skip
"""Fields in the order that people read them, of all documents and their parts: the schema's and `fmt`'s."""
