"""SGLang: `sglang serve` on every rank. Workers serve a dummy page and ignore TERM by design.

A worker ends when rank 0 says so, else it is killed. An engine whose child crashed SIGKILLs its own
tree: "killed by SIGKILL" is then no sign of the kernel's out-of-memory killer.
"""

import pathlib
from typing import Literal

from llmgw.catalog import options
from llmgw.engines import base
from llmgw.fleet.shard import ShardSpec


class Sglang:
    """The adapter of SGLang."""

    name = "sglang"
    programs = ("sglang",)
    weights: Literal["directory"] = "directory"

    def command(self, spec: ShardSpec, weights: str, engine: str) -> base.CommandLine:
        profile = spec.profile
        argv = (
            *_program(engine),
            *("--model-path", weights, "--served-model-name", spec.model),
            *("--host", spec.address, "--port", str(spec.port)),
            *("--tp-size", str(profile.tensor_parallel), "--enable-metrics"),
            *(("--pp-size", str(profile.pipeline_parallel)) if profile.pipeline_parallel > 1 else ()),
            *(("--context-length", str(profile.max_model_len)) if profile.max_model_len else ()),
            *_data_parallel(spec),
            *_memory(spec),
            *_nodes(spec),
            *base.flags(profile),
        )
        return base.CommandLine(argv, (("HF_HUB_OFFLINE", "1"), *profile.env))

    def version(self, engine: str) -> tuple[str, ...]:
        if _is_interpreter(engine):
            return (engine, "-c", "import sglang; print(sglang.__version__)")
        return (engine, "version")

    def watch(self, spec: ShardSpec) -> base.Watch:
        if spec.rank > 0:
            return base.Watch("alive", "joined", base.rendezvous(spec))
        # Its health generates a token, behind the users' requests.
        return base.Watch("alive", "answers", spec.port, timeout=20.0, every=10.0, canary=_canary(spec))

    def terminates(self, rank: int) -> bool:
        return rank == 0

    def load(self, metrics: str) -> base.Load | None:
        return base.load_of(metrics, "sglang:num_running_reqs", "sglang:num_queue_reqs")

    def progress(self, metrics: str) -> float | None:
        return base.progress_of(metrics, "sglang:")

    def explain(self, code: int | None, log_tail: str) -> str:
        ended = base.how_it_ended(code)
        if code in (-9, 137):
            ended += " (SGLang does this to itself when a child of it crashes)"
        return base.explained(ended, log_tail)


def _canary(spec: ShardSpec) -> base.Canary:
    embeds = options.switched_on(spec.profile, "is-embedding")
    return base.EMBEDDING if embeds else base.COMPLETION


def _is_interpreter(engine: str) -> bool:
    return pathlib.PurePath(engine).name.startswith("python")


def _program(engine: str) -> tuple[str, ...]:
    """The console script, or the module where only an interpreter is configured."""
    if _is_interpreter(engine):
        return (engine, "-m", "sglang.launch_server")
    return (engine, "serve")


def _data_parallel(spec: ShardSpec) -> tuple[str, ...]:
    """Attention is data parallel inside the tensor parallel group."""
    degree = spec.profile.data_parallel
    return ("--dp-size", str(degree), "--enable-dp-attention") if degree > 1 else ()


def _memory(spec: ShardSpec) -> tuple[str, ...]:
    if not spec.gpus:
        return ("--device", "cpu")
    return ("--mem-fraction-static", str(spec.profile.gpu_memory_utilization))


def _nodes(spec: ShardSpec) -> tuple[str, ...]:
    if len(spec.peers) == 1:
        return ()
    meet = base.host_port(spec.peers[0].address, base.rendezvous(spec))
    return ("--nnodes", str(len(spec.peers)), "--node-rank", str(spec.rank), "--dist-init-addr", meet)
