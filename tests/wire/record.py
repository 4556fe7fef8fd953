"""Recordings of what this release says: `recorded/RELEASE/`, one message a file. Later releases must go on reading them.

python -m tests.wire.record      writes those of this release anew, for review in the diff

Recordings of earlier releases are never rewritten: they are how a new control plane meets an old agent.
"""

import dataclasses
import importlib.metadata
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from llmgw.fleet.node import CachedWeights, Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from llmgw.fleet.shard import Failure, Progress, ShardStatus
from llmgw.wire import messages as wire
from tests.agent.making import assign, spec, start, stop

DIRECTORY = pathlib.Path(__file__).with_name("recorded")
NODE = "9f2c4e6a8b1d"
SHARD = spec(
    "qwen3/x7qf",
    nodes=(NODE,),
    gpus=("GPU-7c1f", "GPU-7c20"),
    generation="3f9d2c",
    source="hf://Qwen/Qwen3-32B@0123456789012345678901234567890123456789",
    tensor_parallel=2,
)
STATUS = ShardStatus("qwen3/x7qf", 0, "ready", age=3600.5, pid=4711, adopted=True, idle=False, slow=True)
INFO = NodeInfo(
    id=NODE,
    name="gpu-1",
    instance="0a1b2c3d4e5f6071",
    address="10.0.0.11",
    build="0.1.0",
    gpus=(
        Gpu("GPU-7c1f", "NVIDIA H100 80GB HBM3", 85_899_345_920, 1 << 30),
        Gpu("GPU-7c20", "NVIDIA H100 80GB HBM3", 85_899_345_920, 0, foreign=512 << 20),
        Gpu("card-2", "unknown", healthy=False, said="card 2: GPU is lost"),
    ),
    cpu_cores=64.0,
    memory_total=1 << 40,
    memory_free=1 << 39,
    disk_free=1 << 42,
    engines=(
        InstalledEngine("vllm", "0.33.0", "/opt/vllm/bin/vllm", works=True, checked="0.33.0"),
        InstalledEngine("llamacpp", "", "/usr/local/bin/llama-server"),
    ),
    weights=(CachedWeights(SHARD.cache_name, SHARD.source.canonical, 65 << 30, 1_767_225_600.25),),
    labels=(("rack", "a1"),),
    ports=(20000, 20999),
    ports_taken=(20500,),
    warnings=("a restart of llmgw-agent.service would kill every engine of this node",),
)
REGISTER = wire.Register(
    epoch=1_767_225_600,
    revision=17,
    info=INFO,
    shards=((SHARD, STATUS),),
    failures=(Failure("gemma", "77aa01", 3, 12.5, "exit 1: out of memory"),),
    progress=(Progress(SHARD.cache_name, 41 << 30, 65 << 30, 9.4e8, 0.2),),
)


def said() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every message of this release, by the name of its file: what goes up, then what comes down."""
    full = _plain(REGISTER)
    yield "up/register", full
    for absent in ("engines", "disk_free", "gpus", "weights"):
        yield f"up/register-without-{absent}", {**full, "info": _without(full["info"], absent)}
    strange = {**full["info"], "mood": "calm", "gpus": [{**gpu, "nvlink": 4} for gpu in full["info"]["gpus"]]}
    yield "up/register-with-unknown-keys", {**full, "info": strange, "weather": {"sky": ["blue"]}}
    for name, message in _other().items():
        yield name, _plain(message)


def _other() -> dict[str, wire.Message]:
    progress = REGISTER.progress
    endpoint = Endpoint("qwen3/x7qf", "qwen3", "10.0.0.11", 20000, draining=True, slow=True)
    routes = Routes(
        7 << 24, models=(RoutedModel("qwen3", ("chat",), ("gemma",), 30.0),), endpoints=(endpoint,)
    )
    entry = (INFO.weights or ())[0]
    return {
        "up/report": wire.Report(statuses=(STATUS,), info=INFO),
        "up/progress": wire.ProgressReport(progress=progress),
        "up/heartbeat": wire.Heartbeat(idle=((SHARD.key, True),)),
        "up/result": wire.Result(seq=4, ok=False, said="unsupported", data={"entries": []}),
        "up/subscribe": wire.Subscribe(
            gateway="front:8000", instance="f00d", build="0.1.0", version=7 << 24, host="4f1e"
        ),
        "up/load": wire.Load(
            acked=7 << 24,
            in_flight=(("qwen3/x7qf", 3),),
            green=(("qwen3/x7qf", 0.5),),
            queued=(("qwen3", 2),),
            dark=(("qwen3/b2c4", 1.5),),
        ),
        "up/leave": wire.Leave(),
        "down/registered": wire.Registered(epoch=1_767_225_600, revision=17, heartbeat=5.0),
        "down/refused": wire.Refused(said="cannot join: no token was given"),
        "down/assign": assign(SHARD),
        "down/start": start(SHARD),
        "down/stop": stop(SHARD),
        "down/collect": wire.Collect(epoch=1, seq=4, revision=17, entries=(entry,)),
        "down/check": wire.Check(epoch=1, seq=5),
        "down/logs": wire.Logs(epoch=1, seq=6, model="qwen3", replica="qwen3/x7qf", tail=100, wait=4.0),
        "down/clock": wire.Clock(epoch=1, seq=7),
        "down/routes": wire.RoutesUpdate(routes=routes),
    }


def _plain(message: wire.Message) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(wire.encode(message))
    return plain


def _without(info: dict[str, Any], field: str) -> dict[str, Any]:
    assert field in {each.name for each in dataclasses.fields(NodeInfo)}
    return {name: value for name, value in info.items() if name != field}


def main() -> None:
    """Write the recordings of this release."""
    release = DIRECTORY / importlib.metadata.version("llmgw")
    for name, message in said():
        path = release / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(message, indent=1) + "\n")


if __name__ == "__main__":
    main()
