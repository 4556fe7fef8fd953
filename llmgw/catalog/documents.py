"""What people write, field by field: strict, frozen, unknown keys refused.

Called by `reading` with the data of one file and by `schema` for the JSON Schema that editors use;
`resolve` turns the documents into `catalog.model`. Every description below is the text an editor
shows. Durations and sizes stay the text that people wrote; `resolve` converts them.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from llmgw.kit import units

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_NAME = re.compile(NAME.replace("$", r"\Z"), re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_VERSIONS = re.compile(
    r"(?:>=|<=|==|!=|>|<)\d+(?:\.\d+)*(?:\s*,\s*(?:>=|<=|==|!=|>|<)\d+(?:\.\d+)*)*\Z", re.ASCII
)


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ValueError(
            f"cannot use the name {text!r}: lower-case letters, digits, `.`, `_` and `-`, "
            "a letter or digit first, at most 63"
        )
    return text


def _given(value: object) -> object:
    """Refuses `cpu:` without a value: left out and left open are not the same."""
    if value is None:
        raise ValueError("cannot use `cpu` without a value: write {cores: 4, memory: 8GiB}")
    return value


def _with_unit(value: object) -> object:
    """Refuses 20 where 20s is needed, before strictness says that text is needed."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"cannot read {value} without a unit")
    return value


def _duration(text: str) -> str:
    units.seconds(text)
    return text


def _positive_duration(text: str) -> str:
    if units.seconds(text) <= 0:
        raise ValueError(f"cannot use {text!r}: more than 0 is needed")
    return text


def _size(text: str) -> str:
    if units.size(text) <= 0:
        raise ValueError(f"cannot use {text!r}: more than 0 is needed")
    return text


def _sha256(text: str) -> str:
    if not _SHA256.match(text):
        raise ValueError("cannot read this sha256: 64 lower-case hexadecimal digits are needed")
    return text


def _flag(text: str) -> str:
    if not _FLAG.match(text):
        raise ValueError(f"cannot use the flag {text!r}: write its name only, without dashes before it")
    return text


def _argument(value: object) -> "Argument":
    """The value of a flag: a word, a number, true or false, or a list of words and numbers."""
    if isinstance(value, list) and value:
        return tuple(_word(item) for item in value)
    return value if isinstance(value, bool) else _word(value)


def _word(value: object) -> str | int | float:
    if isinstance(value, str):
        return _passable(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError(
        "cannot pass this to an engine: text, a number, true, false or a list of texts and numbers is "
        "needed (true for a flag without a value, quoted text for JSON)"
    )


def _passable(text: str) -> str:
    if "\0" in text:
        raise ValueError("cannot pass this text: it holds a NUL character")
    if text.startswith("-") and not _is_number(text):
        raise ValueError(f"cannot pass {text!r}: an engine would read it as a flag of its own")
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise ValueError(f"cannot use the variable {text!r}: letters, digits and `_`, no digit first")
    return text


def _env_value(text: str) -> str:
    if "\0" in text:
        raise ValueError("cannot pass this text: it holds a NUL character")
    return text


def _versions(text: str) -> str:
    if not _VERSIONS.match(text):
        raise ValueError(f"cannot read {text!r} as versions such as >=0.21 or >=0.21,<0.30")
    return text


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": NAME})]
_UNITS = {"pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d)$", "examples": ["500ms", "30s", "20m", "2h"]}
Duration = Annotated[
    str, BeforeValidator(_with_unit), AfterValidator(_duration), Field(json_schema_extra=_UNITS)
]
PositiveDuration = Annotated[
    str, BeforeValidator(_with_unit), AfterValidator(_positive_duration), Field(json_schema_extra=_UNITS)
]
Size = Annotated[
    str,
    BeforeValidator(_with_unit),
    AfterValidator(_size),
    Field(json_schema_extra={"pattern": r"^\d+(\.\d+)?\s*([KMGT]i?B|B)$", "examples": ["80GiB", "512MiB"]}),
]
Flag = Annotated[str, AfterValidator(_flag)]
Argument = bool | int | float | str | tuple[str | int | float, ...]
_Argument = Annotated[
    Argument,
    PlainValidator(_argument, json_schema_input_type=bool | int | float | str | list[str | int | float]),
]
Variable = Annotated[str, AfterValidator(_variable)]
EnvValue = Annotated[str, AfterValidator(_env_value)]
Versions = Annotated[str, AfterValidator(_versions), Field(json_schema_extra={"examples": [">=0.21"]})]
Names = Annotated[tuple[Name, ...], Field(strict=False)]  # strict would refuse the list that YAML gives


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
        json_schema_extra={"pattern": "^(hf|https|http|file)://"},
    )
    sha256: Annotated[str, AfterValidator(_sha256)] = Field(
        "",
        description="The digest of the file that `source` names; needed for http.",
        json_schema_extra={"pattern": "^[0-9a-f]{64}$"},
    )
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
    cpu: Annotated[CpuDocument | None, BeforeValidator(_given)] = Field(
        None, description="What one shard books on its node; needed where gpus_per_node is 0."
    )
    max_model_len: int = Field(
        0,
        ge=0,
        description="Tokens of context per request, prompt and answer together. 0: what the model has.",
    )
    node_labels: dict[str, str] = Field({}, description="Labels that a node must have, with these values.")
    args: dict[Flag, _Argument] = Field(
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
    distributed: Literal["mp", "ray"] = Field("mp", description="What joins several nodes.")


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
