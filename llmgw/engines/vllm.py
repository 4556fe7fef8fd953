"""vLLM: `vllm serve`, over several nodes in its own multi-process mode (workers are `--headless`).

Workers listen on no HTTP port and may start before rank 0: they wait for its rendezvous. Rank 0's
health stays 200 over a dead worker, so an exit of any rank decides, never health alone.
"""

from typing import Literal

from llmgw.catalog import options
from llmgw.engines import base
from llmgw.errors import Failed
from llmgw.fleet.shard import ShardSpec

SHUTDOWN_TIMEOUT = 10
"""Seconds vLLM may finish what it has after TERM; llmgw has drained it before."""


class Vllm:
    """The adapter of vLLM."""

    name = "vllm"
    programs = ("vllm",)
    weights: Literal["directory"] = "directory"

    def command(self, spec: ShardSpec, weights: str, engine: str) -> base.CommandLine:
        argv = (
            engine,
            *("serve", weights, "--served-model-name", spec.model),
            *_listen(spec),
            *_parallel(spec),
            *_memory(spec),
            *("--shutdown-timeout", str(SHUTDOWN_TIMEOUT)),
            *_nodes(spec),
            *base.flags(spec.profile),
        )
        env = (
            ("VLLM_HOST_IP", spec.address),
            ("VLLM_NO_USAGE_STATS", "1"),
            ("HF_HUB_OFFLINE", "1"),
        )
        return base.CommandLine(argv, (*env, *spec.profile.env))

    def version(self, engine: str) -> tuple[str, ...]:
        return (engine, "--version")

    def watch(self, spec: ShardSpec) -> base.Watch:
        if spec.rank > 0:
            return base.Watch("alive", "joined", base.rendezvous(spec))
        return base.Watch("alive", "answers", spec.port, canary=_canary(spec))

    def terminates(self, rank: int) -> bool:  # noqa: ARG002 - every rank does
        return True

    def load(self, metrics: str) -> base.Load | None:
        return base.load_of(metrics, "vllm:num_requests_running", "vllm:num_requests_waiting")

    def progress(self, metrics: str) -> float | None:
        return base.progress_of(metrics, "vllm:")

    def explain(self, code: int | None, log_tail: str) -> str:
        return base.explained(base.how_it_ended(code), log_tail)


def _canary(spec: ShardSpec) -> base.Canary:
    """Pooling models complete nothing; `--task` is how releases before `--runner` and `--convert` say it."""
    task, runner, convert = (options.word(spec.profile, name) for name in ("task", "runner", "convert"))
    embeds = (
        task in ("embed", "embedding") or convert == "embed" or (runner == "pooling" and convert == "auto")
    )
    return base.EMBEDDING if embeds else base.COMPLETION


def _listen(spec: ShardSpec) -> tuple[str, ...]:
    return ("--host", spec.address, "--port", str(spec.port)) if spec.rank == 0 else ()


def _parallel(spec: ShardSpec) -> tuple[str, ...]:
    profile = spec.profile
    found = ["--tensor-parallel-size", str(profile.tensor_parallel)]
    if profile.pipeline_parallel > 1:
        found += ["--pipeline-parallel-size", str(profile.pipeline_parallel)]
    if profile.data_parallel > 1:
        found += ["--data-parallel-size", str(profile.data_parallel)]
    return tuple(found)


def _memory(spec: ShardSpec) -> tuple[str, ...]:
    found: list[str] = []
    if spec.gpus:
        found += ["--gpu-memory-utilization", str(spec.profile.gpu_memory_utilization)]
    if spec.profile.max_model_len:
        found += ["--max-model-len", str(spec.profile.max_model_len)]
    return tuple(found)


def _nodes(spec: ShardSpec) -> tuple[str, ...]:
    if len(spec.peers) == 1:
        return ()
    if spec.profile.distributed != "mp":
        raise Failed(
            f"cannot run vLLM on {len(spec.peers)} nodes with distributed: {spec.profile.distributed}",
            help="set distributed: mp",
        )
    meet = ("--master-addr", spec.peers[0].address, "--master-port", str(base.rendezvous(spec)))
    headless = ("--headless",) if spec.rank else ()
    return ("--nnodes", str(len(spec.peers)), "--node-rank", str(spec.rank), *meet, *headless)
