"""The tables of `replicas`, `nodes`, `models` and `gc` as lines of text. Pure: no terminal, no colour."""

from collections.abc import Sequence

from llmgw.kit.text import columns, count, safe
from llmgw.kit.units import show_bytes, show_memory, show_seconds
from llmgw.planning.gc import Listing
from llmgw.planning.screen import ModelRow, NodeRow, ReplicaRow, ShardRow

STALLED = 5.0
"""Seconds without a byte that are worth a word."""


def replica_lines(rows: Sequence[ReplicaRow], *, wide: bool = False) -> list[str]:
    """A row a replica; the progress of its fetch is a line under it, and with `wide` each of its ranks."""
    head = ["REPLICA", "STATE", "READY", "NODE", "ENGINE", "AGE", "DETAIL"]
    table = columns([head, *(_replica(row) for row in rows)])
    lines = table[:1]
    for row, line in zip(rows, table[1:], strict=True):
        lines.append(line)
        if row.progress is not None:
            lines.append(f"  fetching {safe(row.source)}  {progress_text(row)}")
        if wide:
            lines += [f"  {line}" for line in columns([_shard(row, shard) for shard in row.shards])]
    return lines


def _shard(row: ReplicaRow, shard: ShardRow) -> list[str]:
    """`rank 0  n0  ready  pid 4121  port 20000  GPU-5b  profile small`."""
    return [
        f"rank {shard.rank}",
        safe(shard.node),
        shard.state + (" (adopted)" if shard.adopted else ""),
        f"pid {shard.pid}" if shard.pid else "no process",
        f"port {shard.port}",
        safe(", ".join(shard.gpus)) or "no GPU",
        safe(f"profile {row.profile}, generation {row.generation[:6]}"),
    ]


def _replica(row: ReplicaRow) -> list[str]:
    age = show_seconds(row.age) if row.nodes else "-"
    cells = [
        row.replica,
        row.state,
        f"{row.ready}/{row.world}",
        ",".join(row.nodes) or "-",
        row.engine or "-",
        age,
    ]
    return [*map(safe, cells), safe(row.detail)]


def progress_text(row: ReplicaRow) -> str:
    """`41.3 of 65.5 GB  63 %  0.9 GB/s`; without a length only what has come so far; a stall says so."""
    progress = row.progress
    if progress is None:
        return ""
    got = show_bytes(progress.received)
    if progress.total:
        share = 100 * progress.received // progress.total
        parts = [f"{got} of {show_bytes(progress.total)}", f"{share} %"]
    else:
        parts = [f"{got} so far"]
    if progress.idle >= STALLED:
        parts.append(f"no byte for {show_seconds(progress.idle)}")
    elif progress.rate:
        parts.append(f"{show_bytes(progress.rate)}/s")
        if progress.total and progress.total > progress.received:
            parts.append(f"about {show_seconds((progress.total - progress.received) / progress.rate)} left")
    return "  ".join(parts)


def node_lines(rows: Sequence[NodeRow], *, wide: bool = False) -> list[str]:
    """A row a node; `?` is what it did not say; its warnings are lines under it, and with `wide` what else it is."""
    head = ["NODE", "STATE", "SEEN", "GPUS", "FREE", "MEMORY FREE", "DISK FREE", "ENGINES", "SHARDS"]
    table = columns([head, *(_node(row) for row in rows)])
    lines = table[:1]
    for row, line in zip(rows, table[1:], strict=True):
        lines.append(line)
        lines += [f"  {safe(said)}" for said in (*row.warnings, *row.strangers)]
        if row.lost_in is not None and row.shards:
            lines.append(
                f"  lost in {show_seconds(row.lost_in)} if it stays silent; then what runs there is rebuilt"
            )
        if row.cordoned:
            lines.append(f"  cordoned: {safe(row.cordoned)}")
        if row.draining:
            lines.append(f"  draining: {safe(row.draining)}")
        if wide:
            cards = ", ".join(f"{number} x {name}" for name, number in row.cards) or "no cards known"
            lines.append("  " + safe("  ".join((row.id, row.address, f"release {row.build or '?'}", cards))))
    return lines


def _node(row: NodeRow) -> list[str]:
    state = row.state if row.connected or row.state != "Ready" else "Ready (reconnecting)"
    return [
        safe(row.name),
        state,
        show_seconds(row.seen) if row.seen is not None else "-",
        "?" if row.gpus is None else str(row.gpus),
        "?" if row.gpus_free is None else str(row.gpus_free),
        "?" if row.memory_free is None else show_memory(row.memory_free),
        "?" if row.disk_free is None else show_bytes(row.disk_free),
        "not reported" if row.engines is None else safe(", ".join(row.engines)) or "none",
        str(row.shards),
    ]


def model_lines(rows: Sequence[ModelRow], *, wide: bool = False) -> list[str]:  # noqa: ARG001 - it has no more
    """A row a model, with the catalog line it comes from; that it is paused is a line under it."""
    head = ["MODEL", "READY", "ALIASES", "FALLBACKS", "FROM"]
    body = [
        [
            row.model,
            f"{row.ready}/{row.wanted}",
            ", ".join(row.aliases) or "-",
            ", ".join(row.fallbacks) or "-",
            row.place,
        ]
        for row in rows
    ]
    table = columns([head, *([safe(cell) for cell in cells] for cells in body)])
    lines = table[:1]
    for row, line in zip(rows, table[1:], strict=True):
        lines.append(line)
        if row.silent:
            lines.append(f"  {row.silent} of them on silent nodes")
        if row.paused:
            lines.append(f"  paused: {safe(row.paused)}")
    return lines


def listing_lines(listing: Listing, names: dict[str, str]) -> list[str]:
    """What nothing wants, what stays and why, who was not asked. `names` maps node ids to names."""
    lines: list[str] = []
    if listing.candidates:
        head = ["NODE", "SIZE", "WEIGHTS", "LISTED BECAUSE"]
        body = [
            [
                names.get(c.node, c.node),
                show_bytes(c.entry.size),
                (c.entry.source.partition("#")[0] or c.entry.cache_name[:12])
                + ("" if c.entry.whole else " (partial)"),
                c.because,
            ]
            for c in listing.candidates
        ]
        lines += [*columns([head, *([safe(cell) for cell in cells] for cells in body)]), ""]
    lines += [
        f"Kept: {show_bytes(kept.size)} in {count(kept.entries, 'item')}, {safe(kept.because)}"
        for kept in listing.kept
    ]
    lines += [
        f"Not asked: {safe(names.get(item.node, item.node))}: {safe(item.because)}"
        for item in listing.not_asked
    ]
    items = len(listing.candidates)
    lines.append(f"{count(items, 'item')}, {show_bytes(listing.size)}." if items else "Nothing to collect.")
    return lines
