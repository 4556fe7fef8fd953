"""The screens as people see them, compared to the letter; hostile names cannot break them."""

from llmgw.cli.screens import listing_lines, model_lines, node_lines, replica_lines
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import Progress
from llmgw.planning.gc import Candidate, Kept, Listing, NotAsked
from llmgw.planning.screen import ModelRow, NodeRow, ReplicaRow

HOSTILE = "\x1b[31m[bold]@all|\n\u202e" + "x" * 200


def test_replicas_with_their_fetches() -> None:
    """The progress of a fetch is a line under its replica; without a length it says only what came."""
    fetching = ReplicaRow(
        "qwen/ab3d", "qwen", "Fetching", 0, 1, ("n0",), "vllm", "p", "g", 48.0, "", "hf://Qwen/Qwen3@1",
        Progress("c", 41_300_000_000, 65_500_000_000, 940_000_000.0, 0.1),
    )  # fmt: skip
    unknown = ReplicaRow(
        "bge/x7qf", "bge", "Fetching", 0, 1, ("n1",), "llamacpp", "p", "g", 12.0, "", "https://w/bge.gguf",
        Progress("d", 212_000_000, None, 0.0, 45.0),
    )  # fmt: skip
    ready = ReplicaRow("a/bcde", "a", "Ready", 2, 2, ("n0", "n1"), "sglang", "p", "g", 7500.0)
    pending = ReplicaRow(
        "v3", "v3", "Pending", 0, 1, detail="fits on none of 2 nodes; n0: 4 GPUs free, 8 needed"
    )
    assert replica_lines([ready, fetching, unknown, pending]) == [
        "REPLICA    STATE     READY  NODE   ENGINE    AGE   DETAIL",
        "a/bcde     Ready     2/2    n0,n1  sglang    2h5m",
        "qwen/ab3d  Fetching  0/1    n0     vllm      48s",
        "  fetching hf://Qwen/Qwen3@1  41.3 GB of 65.5 GB  63 %  940.0 MB/s",
        "bge/x7qf   Fetching  0/1    n1     llamacpp  12s",
        "  fetching https://w/bge.gguf  212.0 MB so far  no byte for 45s",
        "v3         Pending   0/1    -      -         -     fits on none of 2 nodes; n0: 4 GPUs free, 8 needed",
    ]


def test_nodes_say_what_they_did_not_say() -> None:
    """What a node did not report is a question mark, never a zero."""
    rows = [
        NodeRow("i1", "gpu-a1", "Ready", True, 1.0, 8, 4, 402 << 30, 1_900_000_000_000, ("vllm 0.33",), 1),
        NodeRow(
            "i2",
            "old-1",
            "Unreachable",
            False,
            192.0,
            None,
            None,
            None,
            None,
            None,
            0,
            warnings=("GPU 1: lost",),
        ),
    ]
    assert node_lines(rows) == [
        "NODE    STATE        SEEN   GPUS  FREE  MEMORY FREE  DISK FREE  ENGINES       SHARDS",
        "gpu-a1  Ready        1s     8     4     402 GiB      1.9 TB     vllm 0.33     1",
        "old-1   Unreachable  3m12s  ?     ?     ?            ?          not reported  0",
        "  GPU 1: lost",
    ]


def test_models_with_the_line_they_come_from() -> None:
    """Every name clients may use, and the catalog line behind it."""
    assert model_lines([ModelRow("qwen", 1, 2, ("chat",), (), "models/q.yaml:2")]) == [
        "MODEL  READY  ALIASES  FALLBACKS  FROM",
        "qwen   1/2    chat     -          models/q.yaml:2",
    ]


def test_the_listing_of_gc() -> None:
    """What goes and why, what stays and why, who was not asked; the last line counts."""
    entry = CachedWeights("a" * 64, "http://w/old.gguf#sha256=00", 14_500_000_000)
    listing = Listing(
        (Candidate("i1", entry, "no model of the catalog wants it"),),
        (Kept("wanted by the catalog", 2, 812_400_000_000),),
        (NotAsked("i2", "Unreachable"),),
    )
    assert listing_lines(listing, {"i1": "gpu-a1"}) == [
        "NODE    SIZE     WEIGHTS            LISTED BECAUSE",
        "gpu-a1  14.5 GB  http://w/old.gguf  no model of the catalog wants it",
        "",
        "Kept: 812.4 GB in 2, wanted by the catalog",
        "Not asked: i2: Unreachable",
        "1 items, 14.5 GB.",
    ]


def test_hostile_text_is_only_text() -> None:
    """Escape sequences, markup, line breaks and bidi marks of a name reach no terminal."""
    rows = [ReplicaRow(HOSTILE, HOSTILE, HOSTILE, 0, 1, (HOSTILE,), HOSTILE, detail=HOSTILE)]
    nodes = [NodeRow("i", HOSTILE, "Ready", True, 0.0, 0, 0, 0, 0, (HOSTILE,), 0, warnings=(HOSTILE,))]
    models = [ModelRow(HOSTILE, 0, 1, (HOSTILE,), (HOSTILE,), HOSTILE)]
    for lines in (replica_lines(rows), node_lines(nodes), model_lines(models)):
        text = "\n".join(lines)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[bold]@all|" in text
