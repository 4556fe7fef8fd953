"""A plan as the comment of a pull request: a hidden header that a machine reads, a table that people read.

`llmgw plan -o markdown` prints it, `llmgw ci comment` posts it, `llmgw ci plan-id` reads the header back.
Whatever a catalog says is data: no name can ping anybody, end the header or leave its cell. Over the limit of
GitHub details are dropped from the bottom, and such a comment approves nothing; nor does one in which a
difference had to be cut. Pure.
"""

import dataclasses
import json
import re
from collections.abc import Iterator

from llmgw.kit.text import count, safe, shortened
from llmgw.kit.units import show_bytes, show_seconds
from llmgw.planning.cards import spans
from llmgw.planning.fired import options
from llmgw.planning.plan import NotPlaced, Plan
from llmgw.planning.render import counts, how_long, plan_lines, refusal_lines, sections, told_rows
from llmgw.planning.rows import Row

LIMIT = 65_536
"""Characters of one comment."""
_ROOM = 2_000
"""Kept free for the end, which is always there."""
_SERVICE = 30
_CELL = 200
"""Characters of one cell; names of any length fit a table so."""

MARK = "llmgw:plan"
_HEADER = re.compile(r"<!-- llmgw:plan (\{[^\n]*\}) -->")
_SPECIAL = re.compile(r"[\\`*_{}\[\]()#+!|<>&@~^$]")


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What a comment says to a machine. `truncated` bars approval."""

    cluster: str
    digest: str
    head: str
    truncated: bool = False


def escaped(text: str) -> str:
    """`text` as Markdown that shows it and does nothing else."""
    plain = _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", shortened(safe(text), _CELL))
    return plain.replace("://", "&#58;//").replace("www.", "www&#46;")


def comment(plan: Plan, *, head: str = "", apply: str = "llmgw apply") -> str:
    """The comment, at most `LIMIT` characters. `head` is the commit that was planned, `apply` what applies it."""
    whole, end = _body(plan, apply), "\n".join(_end(plan, apply))
    header = Header(plan.cluster, plan.digest, head, truncated=not _is_whole(plan))
    text = "\n".join([header_line(header), *whole, end])
    if len(text) <= LIMIT:
        return text
    first = header_line(dataclasses.replace(header, truncated=True))
    return "\n".join([first, *_cut(whole, LIMIT - len(first) - len(end) - 2), end])


def _is_whole(plan: Plan) -> bool:
    """Whether the cells show every difference to its end."""
    return not any(row.more or any(len(safe(text)) > _CELL for text in _texts(row)) for row in plan.rows)


def _texts(row: Row) -> Iterator[str]:
    """What a row says of the change."""
    yield from (row.model, row.said)
    yield from (said for said, _ in row.also)


def header_line(header: Header) -> str:
    """The first line of a comment. What could end it early is written otherwise."""
    found = json.dumps(dataclasses.asdict(header), sort_keys=True)
    return f"<!-- {MARK} {found.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')} -->"


def read_header(text: str) -> Header | None:
    """The header of a comment; None where its first line is none."""
    match = _HEADER.fullmatch(text.partition("\n")[0].strip())
    if match is None:
        return None
    try:
        found = json.loads(match[1])
        header = Header(found["cluster"], found["digest"], found["head"], found["truncated"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    words = (header.cluster, header.digest, header.head)
    sound = all(isinstance(word, str) for word in words) and isinstance(header.truncated, bool)
    return header if sound else None


def _body(plan: Plan, apply: str) -> list[str]:
    """Everything between the header and the end, most important first."""
    lines = [f"### llmgw plan{f' for {escaped(plan.cluster)}' if plan.cluster else ''}: {_title(plan)}", ""]
    if plan.suppose:
        lines += [f"What if: {escaped(said)}  " for said in plan.suppose] + [""]
    if not _is_whole(plan):
        said = "Not every difference is shown to its end, so this cannot be approved here. Read it with `llmgw plan`."
        lines += ["> [!WARNING]", f"> {said}", ""]
    for said in (*plan.alarms, *plan.warnings):
        lines += ["> [!WARNING]", f"> {escaped(said)}", ""]
    for guard in plan.guards:
        lines += ["> [!CAUTION]", f"> blocked: {escaped(guard.said)}", ""]
    for origin, title in sections(plan):
        rows = [row for row in told_rows(plan) if row.origin == origin]
        waiting = [item for item in plan.unplaced if item.origin == origin]
        if rows or waiting:
            lines += [f"**{title}**", "", *_table(rows, waiting), ""]
    lines += _service(plan)
    if plan.rows or plan.unplaced:
        lines += _details(plan, apply)
    return lines


def _title(plan: Plan) -> str:
    if plan.empty and not plan.unplaced:
        return "no changes"
    number = counts(plan)
    parts = [
        f"{number[word]} {said}"
        for word, said in (("add", "add"), ("replace", "replace"), ("move", "move"), ("routing", "routing"))
        if number[word]
    ]
    parts += [f"**{number['stop']} stop**"] if number["stop"] else []
    parts += [f"{show_bytes(number['fetch_bytes'])} to fetch"] if number["fetch_bytes"] else []
    parts += [f"{number['fetch_unknown']} of unknown size"] if number["fetch_unknown"] else []
    parts += [f"**{number['unplaced']} cannot be placed**"] if number["unplaced"] else []
    parts += filter(None, [how_long(plan)])
    return ", ".join(parts)


def _table(rows: list[Row], waiting: list[NotPlaced]) -> Iterator[str]:
    yield "| | replica | where | why | line | fetch | ready in |"
    yield "|:-:|---|---|---|---|--:|--:|"
    differs = ("", "")
    for row in rows:
        comes = row.symbol in ("+", "+/-", "-/+", "=>")
        name = row.replica if row.symbol in ("-", "=>") and row.replica else row.model
        symbol = f"**{row.symbol}**" if row.symbol in ("-", "-/+") else row.symbol
        cells = [
            symbol.replace("~", "&#126;"),
            f"<code>{escaped(name)}</code>",
            escaped(_where(row)),
            escaped(row.said)
            + (_also(row) if (row.model, row.why) != differs else " and as above" * bool(row.also)),
            escaped(row.spot),
            _fetch(row) if comes else "",
            show_seconds(row.seconds) if comes and row.seconds is not None else "",
        ]
        differs = (row.model, row.why)
        yield f"| {' | '.join(cells)} |"
    for item in waiting:
        why = item.said
        if item.would_fit:
            why += f"; would fit if {item.would_fit[0]}"
        yield f"| **!** | <code>{escaped(item.model)}</code> | | {escaped(why)} | | | |"


def _also(row: Row) -> str:
    """The differences beyond the one that the row tells, each on its line of the cell."""
    more = [f"+{row.more} more"] if row.more else []
    return "".join(f"<br>{line}" for line in [*(escaped(said) for said, _ in row.also), *more])


def _where(row: Row) -> str:
    seats = [f"{seat.node} {spans(seat.cards)}".strip() for seat in row.seats]
    return ", ".join(seats or row.nodes)


def _fetch(row: Row) -> str:
    if row.held:
        return "-"
    return "unknown" if row.fetch is None else show_bytes(row.fetch)


def _service(plan: Plan) -> Iterator[str]:
    moved = [each for each in plan.service if not each.now == each.lowest == each.after]
    if not moved:
        return
    # What dips first: it is what people look for.
    moved.sort(key=lambda each: (each.lowest - each.now, each.model))
    shown = [
        f"{escaped(each.model)} {each.now} → lowest {each.lowest} → {each.after}" for each in moved[:_SERVICE]
    ]
    more = f" · and {len(moved) - _SERVICE} more" if len(moved) > _SERVICE else ""
    outages = sum(bool(each.now and not each.lowest) for each in moved)
    said = f"**{count(outages, 'model')} with nobody ready on the way**" if outages else "no outage"
    yield f"**Service** (ready now → lowest → after): {' · '.join(shown)}{more} · {said}"
    yield ""


def _details(plan: Plan, apply: str) -> Iterator[str]:
    """The plan as text, in the colours of a diff."""
    yield "<details><summary>Placement, sums, reasons</summary>"
    yield ""
    yield "```diff"
    for line in plan_lines(dataclasses.replace(plan, cluster="", catalog=""), apply=apply):
        yield _fenced(line)
    for item in plan.unplaced:
        yield from (
            _fenced(f"  {item.model}: {line}") for line in refusal_lines(item, plan.suppose, every=True)
        )
    yield "```"
    yield "</details>"
    yield ""


def _fenced(line: str) -> str:
    """A line inside the fence: nothing in it ends the fence, opens a comment or names anybody."""
    said = safe(line).replace("`", "'").replace("<!--", "<! --").replace("-->", "-- >").replace("</", "< /")
    said = said.replace("@", "(at)")
    said = shortened(said, 2 * _CELL)
    for symbol, shown in (
        ("  +/- ", "!+- "),
        ("  -/+ ", "!-+ "),
        ("  ~ ", "!~ "),
        ("  + ", "+ "),
        ("  - ", "- "),
    ):
        if said.startswith(symbol):
            return shown + said[len(symbol) :]
    return said


def _cut(whole: list[str], room: int) -> list[str]:
    """As many lines as there is room for, with what was opened closed, and a word that it is not all."""
    kept: list[str] = []
    left = room - _ROOM
    for line in whole:
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    if "```diff" in kept and "```" not in kept:
        kept.append("```")
    if any(line.startswith("<details>") for line in kept) and "</details>" not in kept:
        kept += ["</details>"]
    dropped = len(whole) - len(kept)
    said = f"{count(dropped, 'line')} dropped: the plan is longer than a comment may be, and cannot be approved here."
    return [*kept, "", "> [!WARNING]", f"> {said} Read it with `llmgw plan`.", ""]


def _end(plan: Plan, apply: str) -> Iterator[str]:
    """Of what the plan was made, and what follows."""
    words = [
        f"catalog {plan.catalog}" if plan.catalog else "",
        f"applied: {plan.applied}" if plan.applied else "",
    ]
    words += [f"fleet: {plan.observed}" if plan.observed else ""]
    yield f"<sub>{escaped(' · '.join(filter(None, words)))}</sub>"
    if not plan.empty and not plan.suppose:
        yield ""
        way = f"{apply} --expect {plan.id} {options(plan.guards)}".rstrip().replace("`", "'")
        yield f"After the merge: `{safe(way)}`. If the plan is another one by then, nothing is changed."
