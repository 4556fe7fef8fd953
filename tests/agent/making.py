"""Specs and commands for the agent's tests, spelled once."""

import dataclasses

from llmgw.catalog.model import Profile
from llmgw.catalog.sources import parse
from llmgw.fleet.shard import Peer, ShardSpec
from llmgw.wire import messages

NODE = "node-a"


def profile(**changes: object) -> Profile:
    """A llama.cpp profile on CPU, with `changes`."""
    return dataclasses.replace(Profile("cpu", "llamacpp", max_model_len=512), **changes)  # type: ignore[arg-type]


def spec(
    replica: str = "alpha/x7qf",
    *,
    rank: int = 0,
    port: int = 20000,
    nodes: tuple[str, ...] = (NODE,),
    gpus: tuple[str, ...] = (),
    generation: str = "g1",
    source: str = "file:///weights/alpha.gguf",
    **changes: object,
) -> ShardSpec:
    """A complete shard spec. Each node of `nodes` is a peer; this shard is `rank`, at `port`."""
    peers = tuple(Peer(i, node, "127.0.0.1", port + 10 * (i - rank)) for i, node in enumerate(nodes))
    return ShardSpec(
        replica=replica,
        model=replica.partition("/")[0],
        rank=rank,
        generation=generation,
        profile=profile(**{"nodes": len(nodes), **changes}),
        source=parse(source),
        peers=peers,
        gpus=gpus,
        source_bytes=1000,
    )


def assign(of: ShardSpec) -> messages.Assign:
    """The command that gives a node this shard."""
    return messages.Assign(epoch=1, seq=1, spec=of)


def start(of: ShardSpec) -> messages.Start:
    """The command that executes it."""
    return messages.Start(epoch=1, seq=2, replica=of.replica, rank=of.rank, generation=of.generation)


def stop(of: ShardSpec, *, grace: float = 20.0, generation: str = "") -> messages.Stop:
    """The command that ends it."""
    return messages.Stop(
        epoch=1,
        seq=3,
        replica=of.replica,
        rank=of.rank,
        generation=generation or of.generation,
        grace=grace,
        because="it left the catalog",
    )
