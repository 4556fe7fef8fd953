"""Published start-up figures of engines (`tests/catalog/memory_table.csv`), each as the question it answers.

Read by the test of the estimator and by `python -m tests.lab estimate`. Where a log leaves out the memory
of its card or the weights, the constants below say what was presumed.
"""

import csv
import dataclasses
import pathlib
from collections.abc import Iterator

from llmgw.catalog.arithmetic import disagreement
from llmgw.catalog.divisibility import findings
from llmgw.catalog.documents import SglangDocument, VllmDocument
from llmgw.catalog.facts import ModelFacts, Quantisation, Weights
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.memory import GIB, Estimate, estimate
from llmgw.catalog.model import Profile
from tests.support.models import config

TABLE = pathlib.Path(__file__).parents[1] / "catalog" / "memory_table.csv"

_CARDS = {"H100-80GB": 79.18, "H100-NVL": 93.0, "H200": 139.8, "H20": 139.8, "A100-SXM4-40GB": 39.5, "A100-80GB": 79.25,
          "RTX-A6000": 47.4, "L40": 44.42, "RTX-3090": 23.58, "RTX-4090": 23.55}  # fmt: skip
_LOADED = {"gpt-oss-120b": 64.4, "DeepSeek-R1": 641.0}
"""GiB of models whose log does not say."""
_SHARED_CONTEXT = {"m098": 8}
"""Row → its decode context parallelism, which only its notes say."""
_CODER = Weights(round(449.0 * GIB), round(1.74 * GIB), round(1.74 * GIB), 0, 0, round(436.0 * GIB))


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row: the question (`facts`, `profile`, `card`) and what the log answered. GiB and tokens, 0 = not said."""

    id: str
    model: str
    engine: str
    version: tuple[int, ...]
    outcome: str
    facts: ModelFacts
    profile: Profile
    card: int
    gpus: int
    kv: float
    per_token: int
    graphs: float

    def estimate(self) -> Estimate | None:
        """What llmgw says about it."""
        return estimate(self.facts, self.profile, self.card)

    def refused(self) -> str:
        """Why llmgw refuses it, or nothing."""
        found = [finding for finding in findings(self.facts, self.profile) if not finding.warning]
        if found:
            return found[0].said
        counted = disagreement(_document(self.profile, self.gpus))
        if counted is not None:
            return counted.said
        sum_ = self.estimate()
        return f"{sum_.short / GIB:.2f} GiB short" if sum_ is not None and not sum_.fits else ""


def rows() -> Iterator[Row]:
    """Every row whose model is known here, vLLM's and SGLang's."""
    with TABLE.open(newline="") as file:
        for cells in csv.DictReader(file):
            found = config(cells["model"])
            if found is not None and cells["engine"] in ("vllm", "sglang"):
                yield _row(cells, facts_of(found))


def _row(cells: dict[str, str], facts: ModelFacts) -> Row:
    profile = _profile(cells)
    return Row(
        id=cells["id"],
        model=cells["model"],
        engine=cells["engine"],
        version=_version(cells["engine_version"]),
        outcome=cells["outcome"],
        facts=dataclasses.replace(
            facts, quantisation=_quantisation(cells, facts), weights=_weights(cells, profile)
        ),
        profile=profile,
        card=round(_card(cells) * GIB),
        gpus=int(cells["n_gpus"] or 0),
        kv=float(cells["kv_gib_per_gpu"] or 0),
        per_token=int(cells["kv_bytes_per_token_per_gpu"] or 0),
        graphs=float(cells["cudagraph_gib"] or 0),
    )


def _quantisation(cells: dict[str, str], facts: ModelFacts) -> Quantisation | None:
    return facts.quantisation if cells["weight_quant"] != "none" else None


def _version(text: str) -> tuple[int, ...]:
    digits = text.removeprefix("<=").split("/")[0].split(" ")[0].split(".")[:2]
    return tuple(int(part) for part in digits if part.isdecimal())


def _profile(cells: dict[str, str]) -> Profile:
    args = {
        "dtype": cells["dtype"],
        "kv-cache-dtype": cells["kv_dtype"],
        "max-num-batched-tokens": int(cells["max_num_batched_tokens"] or 0),
        "max-num-seqs": int(cells["max_num_seqs"] or 0),
        "enable-expert-parallel": int(cells["dp"]) > 1 and "Coder" in cells["model"],
        "decode-context-parallel-size": _SHARED_CONTEXT.get(cells["id"], 0),
    }
    version = ".".join(map(str, _version(cells["engine_version"])))
    return Profile(
        name="row",
        engine=cells["engine"],
        nodes=int(cells["nodes"]),
        gpus_per_node=max(1, int(cells["n_gpus"] or 1) // int(cells["nodes"])),
        tensor_parallel=int(cells["tp"] or 1),
        pipeline_parallel=int(cells["pp"]),
        data_parallel=int(cells["dp"]),
        gpu_types=(cells["gpu"],),
        gpu_memory_utilization=float(cells["util"] or 0.9),
        max_model_len=int(cells["max_model_len"] or 0),
        engine_version=f"=={version}" if version.count(".") else "",
        args=tuple((name, value) for name, value in args.items() if value),
    )


def _card(cells: dict[str, str]) -> float:
    known = next((size for name, size in _CARDS.items() if cells["gpu"].startswith(name)), 0.0)
    return float(cells["gpu_total_gib"] or known)


def _weights(cells: dict[str, str], profile: Profile) -> Weights | None:
    if "Coder-480B" in cells["model"]:
        return _CODER
    if cells["weights_gib_per_gpu"]:
        ranks = profile.tensor_parallel * profile.pipeline_parallel
        return Weights(round(float(cells["weights_gib_per_gpu"]) * ranks * GIB))
    presumed = next((size for name, size in _LOADED.items() if name in cells["model"]), None)
    return Weights(round(presumed * GIB)) if presumed is not None else None


def _document(profile: Profile, gpus: int) -> VllmDocument | SglangDocument:
    kind = VllmDocument if profile.engine == "vllm" else SglangDocument
    return kind.model_validate(
        {
            "kind": "profile",
            "name": "row",
            "engine": profile.engine,
            "nodes": profile.nodes,
            "gpus_per_node": max(1, gpus // profile.nodes),
            "tensor_parallel": profile.tensor_parallel,
            "pipeline_parallel": profile.pipeline_parallel,
            "data_parallel": profile.data_parallel,
        }
    )
