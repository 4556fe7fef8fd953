"""A plan as lines of text: the same for `plan`, for the prompt of `apply` and for its history.

Three depths: `summary_lines` has a line an action; `plan_lines` has reasons, sums and estimates, and with
`explain` every term, every node's refusal and every command line. Pure: no terminal, no colour. Untrusted
names pass `kit.text.safe`.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from llmgw.kit.text import columns, count, fitted, safe
from llmgw.kit.units import show_bytes, show_seconds
from llmgw.planning.cards import spans
from llmgw.planning.figures import disk_line, memory_line, ready_line
from llmgw.planning.fired import Allowed, options
from llmgw.planning.plan import NotPlaced, Plan, Service
from llmgw.planning.rows import Origin, Row

LEGEND = {
    "+": "create",
    "-": "drain and stop",
    "+/-": "replace, the new one first",
    "-/+": "replace, the old one first: capacity dips",
    "=>": "move to another node",
    "~": "nothing restarts: routing, bounds, or what already runs so",
    "<=": "fetch weights",
    "!": "cannot be placed",
    ".": "left alone on purpose",
}
"""Symbol → what it means, in the order people read them."""

SECTIONS: dict[Origin, str] = {
    "change": "This change",
    "pending": "Already pending, with or without this change",
    "healing": "Self-healing, with or without this change",
}

WITHOUT = "without "
"""How a supposition begins that takes a node away."""

SUPPOSED = "Self-healing, as it would be then"
"""Instead, where a node is supposed away: some of it follows from that."""

_REASON = 3
"""The column of a row that gives way in a narrow terminal."""
_STOPS = 12
"""Stops that the end of a plan repeats by name; the rest are counted."""


def plan_lines(
    plan: Plan,
    *,
    explain: bool = False,
    width: int | None = None,
    apply: str = "llmgw apply",
    allowed: Allowed = frozenset(),
) -> list[str]:
    """The whole plan; the last line counts. `apply` is the command that applies it, for hints; `allowed` is so already."""
    lines = header_lines(plan)
    warnings = [f"  warning: {safe(said)}" for said in (*plan.alarms, *plan.warnings)]
    lines += [*warnings, ""] if warnings else []
    told = _Told(explain)
    for origin, title in sections(plan):
        rows = [row for row in told_rows(plan) if row.origin == origin]
        waiting = [item for item in plan.unplaced if item.origin == origin]
        alone = plan.alone if origin == "healing" else ()
        if rows or waiting or alone:
            lines += [
                title,
                "",
                *_rows([*rows, *alone], width, told.details),
                *_unplaced(waiting, explain, plan.suppose),
                "",
            ]
    replaced = {row.model for row in plan.rows if row.symbol in ("+/-", "-/+", "=>")}
    moved = [row for row in plan.service if row.model in replaced or not row.now == row.lowest == row.after]
    if moved:
        lines += [*_service(moved), ""]
    if used := legend(plan):
        lines += [*_legend(used, width), ""]
    lines += _stops(plan)
    blocking = [guard for guard in plan.guards if (guard.guard, guard.what) not in allowed]
    lines += [f"{'blocked' if guard in blocking else 'allowed'}: {safe(guard.said)}" for guard in plan.guards]
    if blocking and not plan.suppose:
        lines.append(f"  if that is meant: {safe(apply)} {safe(options(plan.guards))}")
    return [*lines, summary(plan)]


def sections(plan: Plan) -> Iterator[tuple[Origin, str]]:
    """(origin, title) of its parts, in their order."""
    supposed = any(said.startswith(WITHOUT) for said in plan.suppose)
    for origin, title in SECTIONS.items():
        yield origin, SUPPOSED if supposed and origin == "healing" else title


def summary_lines(plan: Plan, *, width: int | None = None) -> list[str]:
    """A line an action, the line that counts, and no more."""
    table = [
        [
            f"  {row.symbol}",
            _name(row),
            _where(row),
            _in_short(row),
            _bytes(row),
            "" if row.seconds is None or not _comes(row) else show_seconds(row.seconds),
        ]
        for row in told_rows(plan)
    ]
    table += [["  !", safe(item.model), "", safe(item.said)] for item in plan.unplaced]
    return [*header_lines(plan), *fitted(table, width, _REASON), summary(plan)]


def header_lines(plan: Plan) -> list[str]:
    """What the plan was made of, as far as it is known."""
    if not (plan.cluster or plan.catalog):
        return []
    words = [
        f"cluster {safe(plan.cluster)}" if plan.cluster else "",
        f"catalog {safe(plan.catalog)}" if plan.catalog else "",
        f"applied {safe(plan.applied)}" if plan.applied else "nothing applied yet",
    ]
    lines = ["   ".join(filter(None, words)), f"fleet {safe(plan.observed)}"]
    lines += [f"what if: {safe(said)}" for said in plan.suppose]
    return [*lines, ""]


def legend(plan: Plan) -> tuple[str, ...]:
    """The symbols that this plan uses, in the order of the legend."""
    used = {row.symbol for row in (*told_rows(plan), *plan.alone)}
    used |= {"!"} if plan.unplaced else set()
    used_all: set[str] = {*used, "<="} if any(_comes(row) and not row.held for row in plan.rows) else {*used}
    return tuple(symbol for symbol in LEGEND if symbol in used_all)


def told_rows(plan: Plan) -> list[Row]:
    """The rows less those that only say that a model changes which finds no place: that has its own line."""
    stuck = {item.model for item in plan.unplaced}
    return [
        row for row in plan.rows if not (row.symbol == "~" and row.code != "routing" and row.model in stuck)
    ]


def _legend(used: Iterable[str], width: int | None) -> list[str]:
    """The meaning of these symbols, on as few lines as there is width for."""
    lines: list[str] = []
    for symbol in used:
        meaning = f"{symbol} {LEGEND[symbol]}"
        if lines and (width is None or len(lines[-1]) + 2 + len(meaning) <= width):
            lines[-1] += f"  {meaning}"
        else:
            lines.append(meaning)
    return lines


def _in_short(row: Row) -> str:
    """Why, with how many other differences there are."""
    others = len(row.also) + row.more
    return f"(+{others} more) {safe(row.said)}" if others else safe(row.said)


class _Told:
    """The details of each row; differences and a sum of memory that were just shown are not shown again."""

    def __init__(self, explain: bool) -> None:
        self._explain, self._last, self._differs = explain, ("", ""), ("", "")

    def details(self, row: Row) -> Iterator[str]:
        """Lines under a row, without their indentation."""
        yield from self._also(row)
        if row.blame and self._explain:
            yield f"by        {safe(row.blame)}"
        if _comes(row):
            yield from self._memory(row)
            yield from (f"disk      {safe(line)}" for line in disk_line(row))
            if row.unread:
                yield f"warning   its source cannot be looked into: {safe(row.unread)}"
            yield f"ready in  {safe(ready_line(row))}"
        if self._explain:
            yield from (f"rank {rank}: {safe(shlex.join(argv))}" for rank, argv in enumerate(row.commands))

    def _also(self, row: Row) -> Iterator[str]:
        """The differences beyond the one that the row tells."""
        if not row.also:
            return
        if (row.model, row.why) == self._differs:
            yield "also      as above"
            return
        self._differs = (row.model, row.why)
        for head, (said, place) in zip(("also", *[""] * len(row.also)), row.also, strict=False):
            yield f"{head:10}{safe(said)}{f'  {safe(place)}' if place else ''}"
        if row.more:
            yield f"{'':10}+{row.more} more, not told here"

    def _memory(self, row: Row) -> Iterator[str]:
        if row.memory is None:
            return
        line = memory_line(row.memory, every=self._explain)
        if (row.model, line) == self._last:
            yield "memory    as above"
            return
        self._last = (row.model, line)
        yield f"memory    {safe(line)}"
        if row.memory.said:
            yield f"          {row.memory.said}"


def _rows(rows: Sequence[Row], width: int | None, details: Callable[[Row], Iterable[str]]) -> Iterator[str]:
    table = [[f"  {row.symbol}", _name(row), _where(row), safe(row.said), safe(row.spot)] for row in rows]
    for row, line in zip(rows, fitted(table, width, _REASON), strict=True):
        yield line
        yield from (f"      {detail}" for detail in details(row))


def _comes(row: Row) -> bool:
    """Whether something is created."""
    return row.symbol in ("+", "+/-", "-/+", "=>")


def _name(row: Row) -> str:
    return safe(row.replica if row.replica and row.symbol in ("-", ".", "=>") else row.model)


def _where(row: Row) -> str:
    if not row.nodes:
        return ""
    verb = "from" if row.symbol == "-" else "on"
    seats = row.seats or ()
    shown = [f"{seat.node} GPU {spans(seat.cards)}" if seat.cards else seat.node for seat in seats]
    left = f", from {', '.join(row.left)}" if row.left else ""
    return safe(f"{verb} {', '.join(shown or row.nodes)}{left}")


def _bytes(row: Row) -> str:
    if not _comes(row):
        return ""
    if row.held:
        return "weights held"
    return "<= size unknown" if row.fetch is None else f"<= {show_bytes(row.fetch)}"


def _unplaced(unplaced: Iterable[NotPlaced], explain: bool, suppose: Sequence[str]) -> Iterator[str]:
    for item in unplaced:
        if item.stay:
            verb, those = ("stays", "it") if len(item.stay) == 1 else ("stay", "them")
            yield f"  ! {safe(', '.join(item.stay))} {verb}: there is nowhere to move {those}"
        else:
            profile = f"under profile {safe(item.profile)}"
            yield f"  ! {safe(item.model)} {profile} {safe(item.said)}"
        yield from (f"      {line}" for line in refusal_lines(item, suppose, every=explain))
        if item.would_fit:
            yield f"      would fit if: {safe('; or '.join(item.would_fit))}"


def refusal_lines(item: NotPlaced, suppose: Sequence[str] = (), *, every: bool = False) -> Iterator[str]:
    """Why, one line a node and rule, or with nodes of the same reason together. `suppose` is the plan's."""
    if not item.reasons and item.short:
        return
    if not item.reasons:
        away = [said.removeprefix(WITHOUT) for said in suppose if said.startswith(WITHOUT)]
        verb = "is" if len(away) == 1 else "are"
        yield f"{safe(', '.join(away))} {verb} supposed away" if away else "no node has registered"
        return
    if every:
        yield from (f"{safe(node)}: {safe(said)}" for node, _, said in item.reasons)
    else:
        together: dict[str, list[str]] = {}
        for node, _, said in item.reasons:
            together.setdefault(said, []).append(node)
        for said, nodes in together.items():
            more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
            yield f"{safe(', '.join(nodes[:4]))}{more}: {safe(said)}"
    told = len({node for node, _, _ in item.reasons})
    if item.nodes > told:
        yield f"and {count(item.nodes - told, 'further node')}"


def _service(rows: Iterable[Service]) -> list[str]:
    head = ["Ready replicas", "now", "lowest", "after"]
    table = [head, *([f"  {safe(r.model)}", str(r.now), str(r.lowest), str(r.after)] for r in rows)]
    return columns(table)


def _stops(plan: Plan) -> Iterator[str]:
    """All that stops, by name: the part of a long plan that nobody may miss."""
    names = [row.replica for row in plan.rows if row.symbol in ("-", "-/+", "+/-") and row.replica]
    if len(plan.rows) > 1 and names:
        more = f" and {len(names) - _STOPS} more" if len(names) > _STOPS else ""
        yield f"Stops: {safe(', '.join(names[:_STOPS]))}{more}"


def counts(plan: Plan) -> dict[str, int]:
    """How much of each kind it does; bytes to fetch as far as they are known."""
    symbols = Counter(row.symbol for row in told_rows(plan))
    sizes = [row.fetch for row in plan.rows if _comes(row)]
    return {
        "add": symbols["+"],
        "replace": symbols["+/-"] + symbols["-/+"],
        "move": symbols["=>"],
        "stop": symbols["-"],
        "routing": symbols["~"],
        "fetch_bytes": sum(size or 0 for size in sizes),
        "fetch_unknown": sum(size is None for size in sizes),
        "unplaced": len(plan.unplaced),
    }


def summary(plan: Plan) -> str:
    """`Plan p-7f3c9a: 2 to add, 1 to replace, …`, or that there is nothing to do."""
    if plan.empty and not plan.unplaced:
        if plan.alone:
            return "No changes: what is not as the catalog asks is left alone for now."
        return "No changes: the fleet is what the catalog asks for."
    number = counts(plan)
    unknown = f" + {number['fetch_unknown']} of unknown size" if number["fetch_unknown"] else ""
    old = sum(item.origin != "change" and not item.because for item in plan.unplaced)
    parts = [
        f"{number['add']} to add",
        f"{number['replace']} to replace",
        *([f"{number['move']} to move"] if number["move"] else []),
        f"{number['stop']} to stop",
        *([count(number["routing"], "routing change")] if number["routing"] else []),
        f"{show_bytes(number['fetch_bytes'])}{unknown} to fetch",
        *filter(None, [how_long(plan)]),
        *(
            [f"{len(plan.unplaced)} cannot be placed{_not_new(old, len(plan.unplaced))}"]
            if plan.unplaced
            else []
        ),
    ]
    return f"Plan {plan.id}: {', '.join(parts)}."


def how_long(plan: Plan) -> str:
    """`about 7m30s`; `at least 7m30s` where a creation has no estimate; nothing where none has one."""
    if not plan.seconds:
        return ""
    partly = any(_comes(row) and row.seconds is None for row in plan.rows)
    return f"{'at least' if partly else 'about'} {show_seconds(plan.seconds)}"


def _not_new(old: int, all_of_them: int) -> str:
    if not old:
        return ""
    return " (not new)" if old == all_of_them else f" ({old} of them not new)"
