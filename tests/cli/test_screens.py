"""The screens as people see them, compared to the letter; hostile names cannot break them."""

import json

import pytest
import ruamel.yaml

from llmgw.cli.checks import Finding
from llmgw.cli.documents import document
from llmgw.cli.doing.doctor import doctor_lines
from llmgw.cli.doing.logs import Terminal
from llmgw.cli.doing.status import status_lines
from llmgw.cli.doing.version import version_lines
from llmgw.cli.doing.why import why_lines
from llmgw.cli.screens import listing_lines, model_lines, node_lines, replica_lines
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import Progress
from llmgw.planning.gc import Candidate, Kept, Listing, NotAsked
from llmgw.planning.screen import ModelRow, NodeRow, ReplicaRow, ShardRow
from llmgw.planning.why import Rejected, Why

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
        "  fetching hf://Qwen/Qwen3@1  41.3 GB of 65.5 GB  63 %  940.0 MB/s  about 26s left",
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
            lost_in=108.0,
        ),
        NodeRow("i3", "gone", "Lost", False, None, None, None, None, None, None, 0, draining="memory (dana)"),
    ]
    assert node_lines(rows) == [
        "NODE    STATE        SEEN   GPUS  FREE  MEMORY FREE  DISK FREE  ENGINES       SHARDS",
        "gpu-a1  Ready        1s     8     4     402 GiB      1.9 TB     vllm 0.33     1",
        "old-1   Unreachable  3m12s  ?     ?     ?            ?          not reported  0",
        "  GPU 1: lost",
        "gone    Lost         -      ?     ?     ?            ?          not reported  0",
        "  draining: memory (dana)",
    ]


def test_wide_rows_say_what_else_there_is() -> None:
    """Each rank of a replica with its process, each node with its id, release and cards."""
    shards = (
        ShardRow(0, "n0", "ready", 4121, 20000, ("GPU-5b",), True),
        ShardRow(1, "n1", "held", 0, 20000, (), False),
    )
    row = ReplicaRow(
        "a/bcde", "a", "Starting", 1, 2, ("n0", "n1"), "vllm", "big", "0123456789", shards=shards
    )
    assert replica_lines([row], wide=True)[2:] == [
        "  rank 0  n0  ready (adopted)  pid 4121    port 20000  GPU-5b  profile big, generation 012345",
        "  rank 1  n1  held             no process  port 20000  no GPU  profile big, generation 012345",
    ]
    silent = NodeRow(
        "i1", "gpu-a1", "Unreachable", False, 20.0, 8, 8, None, None, (), 3, address="10.0.0.1",
        build="1.2", cards=(("H100", 8),), lost_in=280.0,
    )  # fmt: skip
    assert node_lines([silent], wide=True)[2:] == [
        "  lost in 4m40s if it stays silent; then what runs there is rebuilt",
        "  i1  10.0.0.1  release 1.2  8 x H100",
    ]


STATUS = {
    "cluster": "prod", "revision": 3, "commit": "3f2a91c", "who": "dana", "adopted": "2026-01-01T12:00:00+00:00",
    "epoch": 9, "followed": None, "on_hold": None, "alarms": ["dark"], "fenced": "", "nodes": {"i1": "Ready", "i2": "Lost"},
    "models": {"a": {"ready": 1, "wanted": 1}, "b": {"ready": 0, "wanted": 2}}, "gateways": ["gw"],
    "outstanding": ["b: 0 of 2 ready"], "unplaced": ["b"], "build": "1.2",
}  # fmt: skip
MARK = {
    "kind": "confirmed_lost", "name": "gpu-a1", "who": "dana", "reason": "power", "age": 7200.0,
    "until": "2026-01-02T12:00:00+00:00",
}  # fmt: skip


def test_the_status_is_one_screen() -> None:
    """What stands and by whom, alarms, counts, what people set, what is waited for."""
    assert status_lines(STATUS, [MARK]) == [
        "prod  revision 3 (3f2a91c), by dana at 2026-01-01T12:00:00Z  epoch 9",
        "  ALARM dark",
        "  models 1/2 as wanted   nodes 1 Lost, 1 Ready   1 gateway",
        "  confirmed lost gpu-a1 by dana for 2h, until 2026-01-02T12:00Z: power",
        "  waiting  b: 0 of 2 ready",
        "  unplaced b: see `llmgw why b`",
    ]


def test_a_paused_model_is_not_called_as_asked_for() -> None:
    """It is waited for no more, and counted as what it is."""
    done = {**STATUS, "alarms": [], "outstanding": [], "unplaced": []}
    assert status_lines(done, [])[-1] == "  nothing is waited for: what is not as wanted is paused"
    whole = {**done, "models": {"a": {"ready": 1, "wanted": 1}}}
    assert status_lines(whole, [])[-1] == "  the fleet is what the catalog asks for"


def status(**more: object) -> list[str]:
    """The screen of a fleet in which all is well but for this."""
    well = {
        **STATUS, "alarms": [], "nodes": {"i1": "Ready"}, "models": {"a": {"ready": 1, "wanted": 1}},
        "outstanding": [], "unplaced": [],
    }  # fmt: skip
    return status_lines({**well, **more}, [])[1:]


def test_status_says_why_a_model_is_down_and_where_to_ask() -> None:
    """The reason under what is waited for; a model that has one is not listed again."""
    told = {"b": "failed to start 3 times, try 4 in 12s; last: rank 0: exit 1: unknown flag --foo"}
    assert status(
        models=STATUS["models"], outstanding=["b: 0 of 2 ready", "c/x: draining, to be stopped"],
        unplaced=["b"], reasons=told,
    ) == [
        "  models 1/2 as wanted   nodes 1 Ready   1 gateway",
        "  waiting  b: 0 of 2 ready",
        "    failed to start 3 times, try 4 in 12s; last: rank 0: exit 1: unknown flag --foo; next: llmgw why b",
        "  waiting  c/x: draining, to be stopped",
        "  what each waits for: llmgw why NAME",
    ]  # fmt: skip


def test_status_names_who_does_not_speak() -> None:
    """Nodes and gateways, for how long, what it means and where to ask; nothing is simply as it should be."""
    away = [
        {"name": "gpu1", "state": "Unreachable", "seen": 215.0, "lost_in": 85.0},
        {"name": "gpu 2", "state": "Lost", "seen": 720.0, "lost_in": None},
        {"name": "gpu3", "state": "Unheard", "seen": None, "lost_in": None},
    ]
    assert status(away=away, silent_gateways={"gw": 16.0}) == [
        "  models 1/1 as wanted   nodes 1 Ready   1 gateway, 1 silent",
        "  gpu1 Unreachable, silent for 3m35s, lost in 1m25s: it gets nothing new, what serves there is asked as before; "
        "next: llmgw why gpu1",
        "  gpu 2 Lost, silent for 12m: what ran there is rebuilt elsewhere; next: llmgw why 'gpu 2'",
        "  gpu3 Unheard: it has not spoken since this control plane began; next: llmgw why gpu3",
        "  gateway gw, silent for 16s: clients are not served where it is down; next: llmgw why gw",
        "  the fleet is what the catalog asks for, on the nodes that speak",
    ]


def test_status_counts_a_model_that_serves_whatever_goes_beside_it() -> None:
    """A surplus that drains is waited for and is no lack; what serves on silent nodes counts, and is said."""
    surge = status(outstanding=["a: 2 replicas, 1 wanted", "a/bcde: draining, to be stopped"])
    assert surge[0] == "  models 1/1 as wanted   nodes 1 Ready   1 gateway"
    silent = status(models={"a": {"ready": 2, "wanted": 2, "silent": 1}})
    assert silent[0] == "  models 1/1 as wanted (1 by silent nodes)   nodes 1 Ready   1 gateway"


@pytest.mark.parametrize(("why", "word"), [("guard", "held"), ("pending", "pending")])
def test_status_says_which_revision_is_meant_while_another_is_held(why: str, word: str) -> None:
    """The fleet is not what the newest catalog asks for: the revision that stands is named."""
    hold = {"why": why, "age": 60.0, "said": "mass stop", "details": [], "next": "llmgw plan"}
    followed = {
        "said": "main",
        "sync": "auto",
        "blind": None,
        "hold": hold,
        "tree": "3f2a91c",
        "busy": "",
        "dirty": [],
    }
    assert status(followed=followed)[-1] == f"  the fleet is what revision 3 asks for; 3f2a91c is {word}"


def test_why_lists_a_node_once_and_each_of_its_reasons() -> None:
    """The matrix of what does not fit, then what would, then what to run."""
    rejected = (
        Rejected("n0", (("node_ready", "cordoned: disk"), ("cards_free", "0 GPUs free"))),
        Rejected("n1", (("x", "no vllm"),)),
    )
    why = Why("model", "v3", "Pending", ("0 of 1 ready",), rejected, 2, ("profile small",), "llmgw nodes")
    assert list(why_lines(why)) == [
        "model v3  Pending",
        "  0 of 1 ready",
        "  NODE  WHY NOT",
        "  n0    cordoned: disk",
        "        0 GPUs free",
        "  n1    no vllm",
        "  and 2 nodes more",
        "  would fit: profile small",
        "  next: llmgw nodes",
    ]


def test_a_log_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes are data, also cut in two; letters cut in two are whole; a progress bar is lines."""
    show = Terminal()
    for piece in (b"\x1b", b"[2J\x07gone\n 10%\r 20%\r\nG\xc3", b"\xb6del \xff\n"):
        show.write(piece)
    assert (
        capsys.readouterr().out
        == "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}gone\n 10%\n 20%\nGödel \N{REPLACEMENT CHARACTER}\n"
    )


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_say_what_they_are(output: str) -> None:
    """Kind and version come first; YAML is the same document; with `line` it is one line."""
    content = {"items": [{"model": HOSTILE, "ready": 1, "paused": None}]}
    written = document("models", content, output)
    found = json.loads(written) if output == "json" else ruamel.yaml.YAML(typ="safe").load(written)
    assert found == {"kind": "llmgw.models", "format_version": "1.0", **content}
    assert len(document("models", content, "json", line=True).splitlines()) == 1


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
        "Kept: 812.4 GB in 2 items, wanted by the catalog",
        "Not asked: i2: Unreachable",
        "1 item, 14.5 GB.",
    ]


def test_hostile_text_is_only_text() -> None:
    """Escape sequences, markup, line breaks and bidi marks of a name reach no terminal."""
    rows = [ReplicaRow(HOSTILE, HOSTILE, HOSTILE, 0, 1, (HOSTILE,), HOSTILE, detail=HOSTILE)]
    nodes = [NodeRow("i", HOSTILE, "Ready", True, 0.0, 0, 0, 0, 0, (HOSTILE,), 0, warnings=(HOSTILE,))]
    models = [ModelRow(HOSTILE, 0, 1, (HOSTILE,), (HOSTILE,), HOSTILE)]
    status = {**STATUS, "cluster": HOSTILE, "who": HOSTILE, "unplaced": [HOSTILE], "alarms": [HOSTILE]}
    mark = {**MARK, "name": HOSTILE, "reason": HOSTILE, "who": HOSTILE}
    why = Why(
        "model",
        HOSTILE,
        HOSTILE,
        (HOSTILE,),
        (Rejected(HOSTILE, ((HOSTILE, HOSTILE),)),),
        0,
        (HOSTILE,),
        HOSTILE,
    )
    told = {
        "cluster": HOSTILE,
        "build": HOSTILE,
        "agents": [{"name": HOSTILE, "build": HOSTILE}],
        "gateways": [],
    }
    shown = [
        replica_lines(rows, wide=True),
        node_lines(nodes, wide=True),
        model_lines(models),
        status_lines(status, [mark], wide=True),
        list(why_lines(why)),
        version_lines("1.2", told),
        doctor_lines([Finding("wrong", "nodes", HOSTILE, HOSTILE)]),
    ]
    for lines in shown:
        text = "\n".join(lines)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[bold]@all|" in text
