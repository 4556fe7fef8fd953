"""llama.cpp: rank 0 is `llama-server`, the other ranks are `ggml-rpc-server`s that lend it memory.

Workers need no weights (rank 0 sends them) and serve one client. Rank 0 quietly serves without a
worker that it cannot reach, so they listen before it starts, and are ready only once it is attached.
"""

import pathlib
from typing import Literal

from llmgw.catalog import options
from llmgw.engines import base
from llmgw.errors import Failed
from llmgw.fleet.shard import ShardSpec


class LlamaCpp:
    """The adapter of llama.cpp."""

    name = "llamacpp"
    programs = ("llama-server", "llama-server-vulkan")
    weights: Literal["gguf"] = "gguf"

    def command(self, spec: ShardSpec, weights: str, engine: str) -> base.CommandLine:
        argv = _server(spec, weights, engine) if spec.rank == 0 else _worker(spec, engine)
        return base.CommandLine(argv, spec.profile.env)

    def version(self, engine: str) -> tuple[str, ...]:
        return (engine, "--version")

    def watch(self, spec: ShardSpec) -> base.Watch:
        if spec.rank > 0:
            return base.Watch("listening", "joined", spec.port)
        return base.Watch("alive", "answers", spec.port, canary=_canary(spec))

    def terminates(self, rank: int) -> bool:  # noqa: ARG002 - every rank does
        return True

    def load(self, metrics: str) -> base.Load | None:
        return base.load_of(metrics, "llamacpp:requests_processing", "llamacpp:requests_deferred")

    def progress(self, metrics: str) -> float | None:
        return base.progress_of(metrics, "llamacpp:")

    def explain(self, code: int | None, log_tail: str) -> str:
        return base.explained(base.how_it_ended(code), log_tail)


def _canary(spec: ShardSpec) -> base.Canary:
    """A server that was started for embeddings refuses completions."""
    embeds = options.switched_on(spec.profile, "embedding")
    return base.EMBEDDING if embeds else base.COMPLETION


def _server(spec: ShardSpec, weights: str, engine: str) -> tuple[str, ...]:
    return (
        engine,
        *("-m", weights, "--alias", spec.model, "--host", spec.address, "--port", str(spec.port)),
        *_context(spec),
        *("--metrics", "--no-slots", "--no-ui"),
        *_devices(spec),
        *base.flags(spec.profile, without=("parallel",)),
    )


def _worker(spec: ShardSpec, engine: str) -> tuple[str, ...]:
    return (_worker_program(engine), "-H", spec.address, "-p", str(spec.port))


def _context(spec: ShardSpec) -> tuple[str, ...]:
    """`-c` is shared by the slots: each of them gets the model length that was asked for."""
    slots = int(str(dict(spec.profile.args).get("parallel", 1)))
    context = ("-c", str(spec.profile.max_model_len * slots)) if spec.profile.max_model_len else ()
    return (*context, "-np", str(slots))


def _devices(spec: ShardSpec) -> tuple[str, ...]:
    workers = [base.host_port(peer.address, peer.port) for peer in spec.peers[1:]]
    if workers:
        return ("--rpc", ",".join(workers), "-ngl", "all")
    # A profile on CPU must not take a card that the build happens to find.
    return ("-ngl", "all") if spec.gpus else ("--device", "none")


def _worker_program(engine: str) -> str:
    """The `ggml-rpc-server` that was built with the server that was found."""
    path = pathlib.PurePath(engine)
    if "llama-server" not in path.name:
        raise Failed(
            f"cannot run a worker of llama.cpp: nothing says which ggml-rpc-server belongs to {engine}",
            help="name the server llama-server…, with ggml-rpc-server… beside it",
        )
    return str(path.with_name(path.name.replace("llama-server", "ggml-rpc-server")))
