"""What a model is, as far as its small files say: the numbers that decide whether a profile can run it.

Made by `hf_config` (config.json, safetensors) and `gguf_facts` (GGUF header); read by `divisibility`
(rules D1-D14) and `memory`. A number that no file gives is 0, a part that is not there is None: what is
unknown excludes nothing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal


class Unusable(ValueError):
    """A file that should say what a model is cannot be read as that. The text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed row per token, the same on every rank."""

    kv_rank: int
    rope: int
    q_rank: int = 0
    nope: int = 0
    value: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Recurrent:
    """State-space or linear-attention layers. `state` and `convolution` are elements per sequence and layer.

    `groups` are B/C groups of Mamba2, or key heads of a gated delta net; 1 is shared by all ranks.
    """

    heads: int
    groups: int = 1
    state: int = 0
    convolution: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts. `width` = intermediate size of one; `shared` = of those that always run."""

    count: int
    width: int = 0
    shared: int = 0
    active: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Quantisation:
    """How the weights are stored. `block` is (rows, columns) of one scale; `group` inputs share one, 0 = no groups.

    `skipped` are the parts that are stored plainly, as the file names them.
    """

    method: str
    bits: int = 0
    block: tuple[int, int] | None = None
    group: int = 0
    skipped: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the weights. The parts are included in `total`; what is not known of them is 0.

    `embedding` is on the first pipeline stage, `head` on the last; `copied` is on every rank whole;
    `kv` are the key and value projections, which ranks beyond the KV heads hold again; `attention` are the
    other projections of attention.
    """

    total: int
    embedding: int = 0
    head: int = 0
    copied: int = 0
    kv: int = 0
    experts: int = 0
    attention: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model. Layers by what they keep per token: `full` all of it, `windowed` the last `window`, else `recurrent`.

    `longest` is the context it was made for, rope scaling included; `dense` is the intermediate size of
    layers without experts, 0 where there are none. `element` is bytes of one activation; `download` is
    bytes of all its files, 0 where the server does not say.
    """

    architecture: str = ""
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    vocabulary: int = 0
    dense: int = 0
    longest: int = 0
    element: int = 2
    full: int = 0
    windowed: int = 0
    window: int = 0
    latent: Latent | None = None
    recurrent: Recurrent | None = None
    experts: Experts | None = None
    quantisation: Quantisation | None = None
    vision_heads: int = 0
    multimodal: bool = False
    tied: bool = False
    weights: Weights | None = None
    download: int = 0

    @property
    def kept(self) -> int:
        """Layers that keep keys and values."""
        return self.full + self.windowed

    @property
    def stateful(self) -> int:
        """Layers that keep a state of constant size instead."""
        return max(0, self.layers - self.kept) if self.recurrent else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: its shape as stored, and its bytes."""

    name: str
    shape: tuple[int, ...]
    size: int


Part = Literal["embedding", "head", "copied", "kv", "experts", "attention", ""]


def weigh(tensors: Mapping[str, Tensor], *, tied: bool) -> Weights:
    """Sums of `tensors` by where they go. A head that is stored beside a tied embedding is never loaded."""
    sums: dict[Part, int] = {}
    for tensor in tensors.values():
        part = part_of(tensor)
        if not (tied and part == "head"):
            sums[part] = sums.get(part, 0) + tensor.size
    return Weights(
        total=sum(sums.values()),
        embedding=sums.get("embedding", 0),
        head=sums.get("head", 0),
        copied=sums.get("copied", 0),
        kv=sums.get("kv", 0),
        experts=sums.get("experts", 0),
        attention=sums.get("attention", 0),
    )


_KV = ("k_proj.", "v_proj.", "attn_k.", "attn_v.")
_ATTENTION = ("self_attn.", "attention.", "attn_q.", "attn_q_b.", "attn_k_b.", "attn_v_b.", "attn_output.")
_COPIED = (
    "q_a_proj.",
    "kv_a_proj_with_mqa.",
    "mlp.gate.",
    "router.",
    "attn_q_a.",
    "attn_kv_a_mqa.",
    "ffn_gate_inp.",
)


def part_of(tensor: Tensor) -> Part:
    """Where a tensor goes, by the names that checkpoints of both formats use."""
    name = tensor.name
    if "embed_tokens." in name or name.startswith(("token_embd.", "transformer.wte.")):
        return "embedding"
    if name.startswith(("lm_head.", "output.")) or ".lm_head." in name:
        return "head"
    if ".experts." in name or "_exps." in name:
        return "experts"
    if any(marked in name for marked in _COPIED) or len(tensor.shape) < 2:
        return "copied"
    if any(marked in name for marked in _KV):
        return "kv"
    return "attention" if any(marked in name for marked in _ATTENTION) else ""
