"""What a plan promised, against what it is now: the same, less because part of it is done, or another. Pure.

The control plane keeps the promises of the plans it showed; an `apply --expect` or `--plan` is held to
one by `control.adoption`.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping

from llmgw.planning.plan import Counted, Plan, counted, digest_of


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One thing that a plan does, `count` times."""

    symbol: str
    model: str
    code: str
    generation: str
    said: str
    count: int = 1

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What it is one more of. Half a scaling done reads otherwise, and is the same."""
        said = "" if self.code == "scaled" else self.said
        return self.symbol, self.model, self.code, self.generation, said

    def __str__(self) -> str:
        often = f"{self.count} x " if self.count > 1 else ""
        return f"{self.symbol} {often}{self.model}  {self.said}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What a plan does, in short. `base` is the revision of `cluster` that it was made against, `catalog` the digest it
    leads to.
    """

    catalog: str
    base: int
    lines: tuple[Line, ...]
    unplaced: tuple[Line, ...] = ()
    cluster: str = ""

    @property
    def digest(self) -> str:
        """The identity of the plan that promises this."""
        counts: Counted = {
            (each.symbol, each.model, each.code, each.generation, each.said): each.count
            for each in self.lines
        }
        return digest_of(counts, self.catalog)

    @property
    def id(self) -> str:
        return f"p-{self.digest[:6]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """What is done already, and what nobody was shown. The latter makes a plan stale."""

    done: tuple[Line, ...] = ()
    appeared: tuple[Line, ...] = ()
    other_catalog: bool = False

    @property
    def stale(self) -> bool:
        return bool(self.appeared) or self.other_catalog

    @property
    def lines(self) -> tuple[str, ...]:
        """It, for people."""
        return (
            *(f"not in yours   {line}" for line in self.appeared),
            *(f"done or gone   {line}" for line in self.done),
            *(["not in yours   the catalog itself is another"] if self.other_catalog else []),
        )


def promise(plan: Plan) -> Promise:
    """What `plan` promises."""
    lines = tuple(Line(*key, count) for key, count in sorted(counted(plan.rows).items()))
    waiting = Counter((each.model, each.profile) for each in plan.unplaced)
    unplaced = tuple(
        Line("!", model, "unplaced", "", f"cannot be placed under {profile}", number)
        for (model, profile), number in sorted(waiting.items())
    )
    return Promise(plan.catalog_digest, plan.base, lines, unplaced, plan.cluster)


def compare(promised: Promise, now: Promise) -> Difference:
    """What became of a promise. Nothing appeared = what is left of it may be done.

    A replica that finds no place any more is something else than one that is there already.
    """
    was = _counts(promised.lines) + _counts(promised.unplaced)
    is_now = _counts(now.lines) + _counts(now.unplaced)
    words = {line.key: line for line in (*promised.lines, *promised.unplaced, *now.lines, *now.unplaced)}
    return Difference(
        done=_listed(was - is_now, words),
        appeared=_listed(is_now - was, words),
        other_catalog=promised.catalog != now.catalog,
    )


def _counts(lines: tuple[Line, ...]) -> Counter[tuple[str, str, str, str, str]]:
    found: Counter[tuple[str, str, str, str, str]] = Counter()
    for line in lines:
        found[line.key] += line.count
    return found


def _listed(
    counts: Counter[tuple[str, str, str, str, str]], words: Mapping[tuple[str, str, str, str, str], Line]
) -> tuple[Line, ...]:
    return tuple(dataclasses.replace(words[key], count=number) for key, number in sorted(counts.items()))
