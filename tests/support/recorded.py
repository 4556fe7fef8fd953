"""A fleet in the middle of its day, made once and kept as `tests/cli/golden/fleet.json`: what screens are drawn of.

Six machines (one silent, one that reports no engines), models that serve, one that is fetched, one that fails,
one that drains, one that is paused and one that fits nowhere. `NEXT` is the catalog that somebody proposes.
"""

import dataclasses
import datetime
import pathlib
from collections.abc import Mapping

from llmgw.catalog import hf_config
from llmgw.catalog.facts import Weights
from llmgw.catalog.load import load_files
from llmgw.control import snapshot
from llmgw.fleet import events
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.shard import Progress
from llmgw.planning.asking import Given
from llmgw.planning.costs import Known, Sample, Seen
from llmgw.planning.desired import Desired, Marks
from tests.planning.story import Story
from tests.support import models

GOLDEN = pathlib.Path(__file__).parents[1] / "cli" / "golden"
FLEET = GOLDEN / "fleet.json"
AT = datetime.datetime(2026, 1, 1, 9, 30, tzinfo=datetime.UTC)
GIB, GB = 1 << 30, 10**9
SHA, PIN = "ab" * 32, "cd" * 20

PROFILES = {
    "h100-tp4": "engine: vllm\ngpus_per_node: 4\ntensor_parallel: 4\nmax_model_len: {length}\ngpu: {{types: [H100], memory: 80GiB}}\ndrain: 2m\n",
    "l40s-tp4": "engine: vllm\ngpus_per_node: 4\ntensor_parallel: 4\nmax_model_len: 16384\ngpu: {{types: [L40S], memory: 48GiB}}\n",
    "h100-2x8": "engine: vllm\nnodes: 2\ngpus_per_node: 8\ntensor_parallel: 8\npipeline_parallel: 2\ngpu: {{types: [H100], memory: 80GiB}}\n",
    "one-h100": "engine: vllm\ngpus_per_node: 1\nmax_model_len: 8192\ngpu: {{types: [H100], memory: 80GiB}}\n",
    "cpu": "engine: llamacpp\ngpus_per_node: 0\ncpu: {{cores: 4, memory: 8GiB}}\nmax_model_len: 4096\n",
}


def model(name: str, source: str, profile: str, replicas: int = 1, more: str = "") -> str:
    """A model document."""
    digest = f"sha256: {SHA}\n" if source.startswith("http") else ""
    return (
        f"kind: model\nname: {name}\nsource: {source}\n{digest}profiles: [{profile}]\n{more}"
        f"scaling: {{min: {replicas}, max: {max(1, replicas)}}}\n"
    )


def profiles(length: int) -> dict[str, str]:
    """Every profile; `length` is that of the large one."""
    return {
        f"profiles/{name}.yaml": f"kind: profile\nname: {name}\n{text.format(length=length)}"
        for name, text in PROFILES.items()
    }


QWEN = f"hf://Qwen/Qwen3-14B@{PIN}"
LLAMA = f"hf://meta-llama/Llama-3.3-70B-Instruct@{PIN}"
STANDING: Mapping[str, str] = {
    **profiles(32768),
    "models/llama-70b.yaml": model("llama-70b", LLAMA, "h100-tp4", 2),
    "models/mistral-7b.yaml": model(
        "mistral-7b", f"hf://mistralai/Mistral-7B-Instruct-v0.3@{PIN}", "one-h100", 2, "aliases: [fast]\n"
    ),
    "models/embed-bge.yaml": model("embed-bge", "https://weights.example/bge-m3.gguf", "cpu"),
    "models/llama-8b.yaml": model("llama-8b", f"hf://meta-llama/Llama-3.1-8B@{PIN}", "l40s-tp4"),
    "models/deepseek-v3.yaml": model("deepseek-v3", f"hf://deepseek-ai/DeepSeek-V3@{PIN}", "h100-2x8"),
    "models/phi-4.yaml": model("phi-4", f"hf://microsoft/phi-4@{PIN}", "one-h100"),
}
NEXT: Mapping[str, str] = {
    **profiles(131072),
    **{name: text for name, text in STANDING.items() if name.startswith("models/") and "mistral" not in name},
    "models/qwen3-14b.yaml": model("qwen3-14b", QWEN, "l40s-tp4", 1, "aliases: [fast]\n"),
    "models/embed-bge.yaml": model("embed-bge", "https://weights.example/bge-m3.gguf", "cpu", 2),
}


MACHINES = ("cpu-c1", "old-1", "gpu-a1", "gpu-a2", "gpu-b1", "gpu-b2")
"""In the order of their addresses."""


def node(name: str, kind: str, cards: int, memory: int, *engines: str, disk: int = 1900 * GB) -> NodeInfo:
    """A machine."""
    return NodeInfo(
        id=f"id-{name}",
        name=name,
        address=f"10.1.0.{1 + MACHINES.index(name)}",
        build="0.1.0",
        gpus=tuple(Gpu(f"{name}-card-{i}", kind, memory) for i in range(cards)),
        cpu_cores=64.0,
        memory_total=512 * GIB,
        memory_free=402 * GIB,
        disk_free=disk,
        engines=tuple(InstalledEngine(*each.split()) for each in engines) or None,
        weights=(),
    )


NODES = (
    node("gpu-a1", "H100", 8, 80 * GIB, "vllm 0.19.0", "sglang 0.5.5"),
    node("gpu-a2", "H100", 8, 80 * GIB, "vllm 0.19.0"),
    node("gpu-b1", "L40S", 4, 48 * GIB, "vllm 0.19.0", "llamacpp b6402", disk=228 * GB),
    node("gpu-b2", "L40S", 4, 48 * GIB, "vllm 0.19.0"),
    node("cpu-c1", "", 0, 0, "llamacpp b6402", disk=88 * GB),
    node("old-1", "A10", 2, 24 * GIB, disk=90 * GB),
)


def recorded() -> snapshot.Snapshot:
    """The fleet as it is at `AT`."""
    standing = load_files({name: text.encode() for name, text in STANDING.items()})
    bare = dataclasses.replace(
        standing,
        models={name: each for name, each in standing.models.items() if name not in ("phi-4", "deepseek-v3")},
    )
    story = Story(*NODES, catalog=bare)
    story.runs()
    gone = next(s.spec.node for s in story.fleet.shards.values() if s.spec.model == "llama-8b")
    story.gateway("10.1.0.99:8000")
    story.silence(gone).after(192.0)
    story.marks(Marks(paused={"phi-4": "dana: driver upgrade"}, cordoned={"id-old-1": "sam: card 1 is loud"}))
    story.adopts(standing)
    fetching = next(s.spec for s in story.fleet.shards.values() if s.spec.model == "embed-bge")
    story.says(fetching.key, "failed", reason="exit 1: bind: address already in use")
    story.decides()
    story.says(fetching.key, "gone")
    story.after(9.0).decides()
    new = next(s.spec for s in story.fleet.shards.values() if s.spec.model == "embed-bge")
    story.says(new.key, "fetching")
    story.hears(events.Progressed(new.node, (Progress(new.cache_name, 212_000_000, None, 38e6, 0.2),)))
    story.after(14.0).decides()
    return snapshot.Snapshot(AT, STANDING, _given(story, standing.models["llama-70b"].cache_name))


def _given(story: Story, llama: str) -> Given:
    proposed = load_files({name: text.encode() for name, text in NEXT.items()})
    qwen = proposed.models["qwen3-14b"].cache_name
    facts = {
        llama: dataclasses.replace(
            hf_config.facts_of(models.LLAMA_70B, Weights(141_107_412_992)), download=141_107_412_992
        ),
        qwen: dataclasses.replace(
            hf_config.facts_of(models.QWEN3_14B, Weights(29_536_614_400)), download=29_536_614_400
        ),
    }
    seen = Seen({}, {"id-gpu-b1": Sample(0.94e9, 5)})
    desired = Desired(None, story.desired.marks, {name: each.download for name, each in facts.items()})
    return Given(
        desired=desired,
        fleet=story.fleet,
        ledger=story.ledger,
        now=story.now,
        timers=story.timers,
        number=7,
        known=Known(facts, seen),
        cluster="prod",
        applied="revision 7 (8c01d77, 2h ago by ilker)",
    )


HOSTILE = ("[bold]", "\x1b[31mred", "@all", "a|b", "x" * 200, "\u202egnp", "line\nbreak", "`id`<!-- x -->")


def hostile() -> snapshot.Snapshot:
    """The recorded fleet with names, reasons and words that attack whoever prints them."""
    found = recorded()
    nodes = {}
    for name, (identity, known) in zip(HOSTILE, sorted(found.given.fleet.nodes.items()), strict=False):
        info = dataclasses.replace(
            known.info,
            name=name,
            warnings=HOSTILE,
            engines=(*(known.info.engines or ()), InstalledEngine(name, name)),
        )
        nodes[identity] = dataclasses.replace(known, info=info)
    shards = {
        key: dataclasses.replace(shard, status=dataclasses.replace(shard.status, reason="".join(HOSTILE)))
        for key, shard in found.given.fleet.shards.items()
    }
    marks = Marks(
        paused={"phi-4": "".join(HOSTILE)}, cordoned=dict.fromkeys(list(nodes)[:3], "".join(HOSTILE))
    )
    fleet = dataclasses.replace(found.given.fleet, nodes=nodes, shards=shards)
    desired = dataclasses.replace(found.given.desired, marks=marks)
    given = dataclasses.replace(
        found.given, fleet=fleet, desired=desired, cluster="".join(HOSTILE), applied="".join(HOSTILE)
    )
    return dataclasses.replace(found, given=given)


def write() -> None:
    """Record it anew, with the catalogs that the screens plan."""
    FLEET.write_text(snapshot.dump(recorded()))
    for directory, files in (("standing", STANDING), ("next", NEXT)):
        for name, text in files.items():
            path = GOLDEN / directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    models.write(GOLDEN / "llama", models.LLAMA_70B, 131)
