"""The numbers of a row as text: sums that add up as they are shown, estimates with what they are from. Pure."""

from collections.abc import Iterator

from llmgw.kit.sums import down, memory_unit, shown, tenths
from llmgw.kit.units import show_bytes, show_seconds
from llmgw.planning.costs import Memory, Seat, Timing
from llmgw.planning.rows import Row

GB = 10**9
_WORTH_A_SUM = GB // 10
"""Bytes from where on a fetch is shown against the disk in tenths of a GB."""


def memory_line(memory: Memory, *, every: bool = False) -> str:
    """`15.3 weights + 2.6 overhead + 22.6 KV = 40.5 of 40.5 GiB a card (45.0 x 0.90)`.

    Estimated terms are one, the overhead; `every` shows each by its name.
    """
    unit, name = memory_unit(max(memory.total, memory.budget))
    parts = [(part.name, part.size) for part in memory.parts]
    if not every:
        rest = sum(part.size for part in memory.parts if part.basis == "estimate")
        exact = [(part.name, part.size) for part in memory.parts if part.basis == "exact"]
        parts = [*exact[:1], ("overhead (estimate)", rest), *exact[1:]]
    rounded = tenths([size for _, size in parts], unit)
    total, budget = sum(rounded), down(memory.budget, unit)
    if memory.short <= 0:
        # All of it may be used: rounded apart, a full card would look too small by a tenth.
        budget = max(budget, total)
    terms = " + ".join(f"{shown(size)} {what}" for size, (what, _) in zip(rounded, parts, strict=True))
    where = "booked" if memory.cpu else "a card"
    share = f" ({shown(down(memory.card, unit))} x {memory.share:.2f})" if memory.share != 1.0 else ""
    short = f"; {shown(max(1, total - budget))} {name} short" if memory.short > 0 else ""
    return f"{terms} = {shown(total)} of {shown(budget)} {name} {where}{share}{short}"


def disk_line(row: Row) -> Iterator[str]:
    """What each node has to fetch, against its disk."""
    if row.held:
        yield "weights held, or on their way"
        return
    for seat in row.seats:
        where = f" to {seat.node}" if len(row.seats) > 1 else ""
        if seat.fetch is None:
            free = f"; {show_bytes(seat.free)} free" if seat.free is not None else ""
            why = "" if row.unread else " (its source says no length)"
            yield f"<= size unknown{why}{where}{free}"
        elif seat.fetch == 0:
            yield f"weights held, or on their way{where}"
        else:
            yield f"<= {_against(seat, where)}"


def _against(seat: Seat, where: str) -> str:
    fetch = seat.fetch or 0
    if seat.free is None:
        return f"{show_bytes(fetch)}{where}"
    if fetch < _WORTH_A_SUM or seat.free < fetch:
        return f"{show_bytes(fetch)}{where}; {show_bytes(seat.free)} free"
    need, left = tenths([fetch, seat.free - fetch], GB)
    return f"{shown(need)} GB{where}; {shown(need + left)} GB free -> {shown(left)} GB"


def ready_line(row: Row) -> str:
    """`about 2m50s: fetch 1m10s (measured: …) + start 1m40s (guess: …)`, or why there is no estimate."""
    parts = [
        f"{word} {show_seconds(timing.seconds)} ({timing.basis})"
        for word, timing in (("fetch", row.fetching), ("start", row.starting))
        if timing is not None
    ]
    if not parts:
        return "no estimate: how large its weights are is not known, and no start of it has been measured"
    if row.seconds is None:
        return f"{' + '.join(parts)} + what nobody has measured"
    return f"about {show_seconds(_total(row.fetching, row.starting))}: {' + '.join(parts)}"


def _total(*timings: Timing | None) -> float:
    """The sum as the parts are shown: in whole seconds from a second on."""
    shown_parts = [timing.seconds for timing in timings if timing is not None]
    return sum(round(value) if value >= 1 else value for value in shown_parts)
