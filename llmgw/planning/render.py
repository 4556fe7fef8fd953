"""A plan as lines of text: the same for `plan`, for the prompt of `apply` and for its history.

Pure: no terminal, no colour. Untrusted names pass `kit.text.safe`.
"""

import shlex
from collections.abc import Iterable

from llmgw.kit.text import columns, safe
from llmgw.kit.units import show_bytes
from llmgw.planning.plan import NotPlaced, Plan, Row, Service

_LEGEND = {
    "+": "create",
    "-": "drain and stop",
    "+/-": "replace, the new one first",
    "-/+": "replace, the old one first: capacity dips",
    "~": "routing or bounds only",
    "!": "cannot be placed",
}


def plan_lines(plan: Plan, *, explain: bool = False) -> list[str]:
    """The whole plan; the last line counts. `explain` adds the command line of every rank that would start."""
    lines: list[str] = [f"  warning: {safe(said)}" for said in (*plan.alarms, *plan.warnings)]
    change = [row for row in plan.rows if row.origin == "change"]
    healing = [row for row in plan.rows if row.origin == "healing"]
    if change:
        lines += ["This change", "", *_rows(change, explain), ""]
    if healing:
        lines += ["Self-healing, with or without this change", "", *_rows(healing, explain), ""]
    if plan.unplaced:
        lines += [*_unplaced(plan.unplaced), ""]
    moved = [row for row in plan.service if not row.now == row.lowest == row.after]
    if moved:
        lines += [*_service(moved), ""]
    used = dict.fromkeys(row.symbol for row in plan.rows)
    if used:
        lines += ["  ".join(f"{symbol} {_LEGEND[symbol]}" for symbol in used), ""]
    return [*lines, summary(plan)]


def _rows(rows: list[Row], explain: bool) -> list[str]:
    table = [
        [row.symbol, _name(row), _where(row), safe(row.said), _bytes(row), safe(row.place)] for row in rows
    ]
    lines: list[str] = []
    for row, line in zip(rows, columns(table), strict=True):
        lines.append(f"  {line}")
        if explain:
            lines += [
                f"      rank {rank}: {safe(shlex.join(argv))}" for rank, argv in enumerate(row.commands)
            ]
    return lines


def _name(row: Row) -> str:
    return safe(row.replica if row.replica and row.symbol == "-" else row.model)


def _where(row: Row) -> str:
    if not row.nodes:
        return ""
    verb = "from" if row.symbol == "-" else "on"
    cards = f" GPU {', '.join(row.gpus)}" if row.gpus else ""
    return safe(f"{verb} {', '.join(row.nodes)}{cards}")


def _bytes(row: Row) -> str:
    if row.symbol in ("-", "~"):
        return ""
    if row.held:
        return "weights held"
    return "<= size unknown" if row.fetch is None else f"<= {show_bytes(row.fetch)}"


def _unplaced(unplaced: Iterable[NotPlaced]) -> list[str]:
    lines: list[str] = []
    for item in unplaced:
        count = len({node for node, _, _ in item.reasons})
        lines.append(
            f"  ! {safe(item.model)} under profile {safe(item.profile)} fits on none of {count} nodes"
        )
        lines += [f"      {safe(node)}: {safe(said)}" for node, _, said in item.reasons]
        if not item.reasons:
            lines.append("      no node has registered")
    return lines


def _service(rows: Iterable[Service]) -> list[str]:
    head = ["Ready replicas", "now", "lowest", "after"]
    table = [head, *([f"  {safe(r.model)}", str(r.now), str(r.lowest), str(r.after)] for r in rows)]
    return columns(table)


def summary(plan: Plan) -> str:
    """`Plan p-7f3c9a: 2 to add, 1 to replace, …`, or that there is nothing to do."""
    if plan.empty and not plan.unplaced:
        return "No changes: the fleet is what the catalog asks for."
    counts = {symbol: sum(row.symbol == symbol for row in plan.rows) for symbol in _LEGEND}
    sizes = [row.fetch for row in plan.rows if row.symbol not in ("-", "~")]
    known, unknown = sum(size or 0 for size in sizes), sum(size is None for size in sizes)
    parts = [
        f"{counts['+']} to add",
        f"{counts['+/-'] + counts['-/+']} to replace",
        f"{counts['-']} to stop",
        *([f"{counts['~']} routing change{'s' * (counts['~'] > 1)}"] if counts["~"] else []),
        f"{show_bytes(known)}{f' + {unknown} of unknown size' if unknown else ''} to fetch",
        *([f"{len(plan.unplaced)} cannot be placed"] if plan.unplaced else []),
    ]
    return f"Plan {plan.id}: {', '.join(parts)}."
