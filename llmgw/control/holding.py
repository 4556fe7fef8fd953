"""What becomes of a tree that was followed: it is adopted, waits for a person, or is held. Pure.

`watch` finds a tree, this module judges it, `store` keeps what was judged so that a restart says the
same. A verdict is about a tree against what stood: what was held is judged again once it changes, or once
another revision stands. What a person's apply moved away from is not taken again by itself.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import pydantic

from llmgw.catalog.model import Catalog, Model, Place, Profile
from llmgw.planning.fired import options
from llmgw.planning.plan import Plan

Why = Literal["pending", "invalid", "removal", "half-written", "guard", "left"]
MEANT: frozenset[Why] = frozenset({"pending", "left"})
"""Why something that is followed waits for people without being at fault."""
SHOWN = 5
"""Problems that a hold keeps; the rest are counted."""
_Found = TypeVar("_Found")
MOST_LEFT = 32
"""Catalogs remembered that applies moved away from, the newest."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """How the catalog at `path` is followed. `build` is ours: another release judges again."""

    watch: Literal["commits", "files"]
    sync: Literal["auto", "manual"] = "manual"
    path: str = "catalog"
    build: str = ""

    @property
    def apply(self) -> str:
        """What a person runs to adopt what is held."""
        return f"llmgw plan {self.path}, then llmgw apply {self.path}"


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A tree that does not stand, and why. `details` each have their place; `next` is what to run."""

    why: Why
    said: str
    since: pydantic.AwareDatetime
    details: tuple[str, ...] = ()
    next: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Blind:
    """The catalog cannot be read at all: nothing is known about it, and nothing follows from that."""

    said: str
    since: pydantic.AwareDatetime
    next: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    """What is kept about the catalog that is followed.

    `mark` is of the bytes judged last, under `rules`; `digest` of their meaning, empty where they have
    none; `commit` is where they were; `against` the digest of what stood then, empty for nothing; `left`
    the digests that people's applies moved away from.
    """

    mark: str = ""
    rules: Rules | None = None
    digest: str = ""
    commit: str = ""
    against: str = ""
    left: tuple[str, ...] = ()
    hold: Hold | None = None
    blind: Blind | None = None

    @property
    def name(self) -> str:
        """What people call this tree: its commit, or the beginning of its mark."""
        return self.commit or self.mark[:12]


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """A tree that is no valid catalog."""

    said: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Same:
    """A tree that means what stands already."""

    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Valid:
    """A tree that means something else: what it would do, what it gives up, and the files that look cut."""

    digest: str
    plan: Plan
    given_up: tuple[str, ...] = ()
    cut_short: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What is kept from now on, and whether the tree is to be adopted first."""

    followed: Followed
    adopt: bool = False


def judged(before: Followed, mark: str, rules: Rules, standing: str) -> bool:
    """Whether the verdict on this very tree is about what stands now (the digest `standing`), by the same rules."""
    if (before.mark, before.rules) != (mark, rules):
        return False
    return before.hold is None or before.hold.why == "left" or before.against == standing


def again(before: Followed, standing: str, by: str, now: datetime.datetime) -> Followed:
    """What is true of the tree judged last, now that the catalog with the digest `standing` stands.

    `by` names the revision that stands, and who applied it. A tree that was held for another reason than
    `left` keeps its hold until it is judged against what stands now.
    """
    if before.digest and before.digest == standing:
        return dataclasses.replace(before, against=standing, hold=None, left=())
    if before.rules is None or before.against == standing:
        return before
    left = _and_left(before.left, before.against)
    if before.hold is not None and before.hold.why != "left":
        return dataclasses.replace(before, left=left)
    said = f"{by} was applied in its place; it is not taken again before it changes"
    since = before.hold.since if before.hold is not None else now
    hold = Hold("left", said, since, (), _to_return(before.rules))
    return dataclasses.replace(before, against=standing, hold=hold, left=_and_left(left, before.digest))


def _to_return(rules: Rules) -> str:
    """Nothing has to be done; what follows undoes what was applied instead."""
    return f"nothing, if that is meant; to go back to it: {rules.apply}"


def _and_left(left: tuple[str, ...], digest: str) -> tuple[str, ...]:
    return left if not digest or digest in left else (*left, digest)[-MOST_LEFT:]


def judge(
    before: Followed,
    mark: str,
    commit: str,
    found: Refused | Same | Valid,
    rules: Rules,
    standing: str,
    now: datetime.datetime,
) -> Verdict:
    """What becomes of a tree that has not been judged yet against what stands, the digest `standing`."""
    digest = "" if isinstance(found, Refused) else found.digest
    after = Followed(mark, rules, digest, commit, standing, before.left)
    if isinstance(found, Same):
        return Verdict(dataclasses.replace(after, left=()))
    hold = _hold(found, before.left, rules, now)
    if hold is None:
        return Verdict(dataclasses.replace(after, against=digest, left=()), adopt=True)
    if before.mark == mark and before.hold is not None and before.hold.why == hold.why:
        hold = dataclasses.replace(hold, since=before.hold.since)
    return Verdict(dataclasses.replace(after, hold=hold))


def blinded(before: Followed, said: str, help_: str, now: datetime.datetime) -> Followed:
    """After a look that could read nothing: everything else that is kept stays as it is."""
    since = before.blind.since if before.blind is not None else now
    return dataclasses.replace(before, blind=Blind(said, since, help_))


def _hold(found: Refused | Valid, left: tuple[str, ...], rules: Rules, now: datetime.datetime) -> Hold | None:
    """Why the tree does not stand by itself; None = it may. The first reason that applies."""
    by_files = rules.watch == "files"
    if isinstance(found, Refused):
        return Hold("invalid", found.said, now, found.details, f"llmgw validate {rules.path}")
    if refused := found.plan.guards:
        details = shortened([each.said for each in refused[1:]])
        return Hold("guard", refused[0].said, now, details, f"{rules.apply} {options(refused)}")
    if rules.sync == "manual":
        return Hold("pending", in_short(found.plan), now, (), rules.apply)
    if found.digest in left:
        return Hold("left", "a person's apply moved away from it", now, (), _to_return(rules))
    if by_files and found.cut_short:
        return Hold(
            "half-written", "it looks half-written", now, found.cut_short, f"finish it, or {rules.apply}"
        )
    if by_files and found.given_up:
        return Hold("removal", "what files give up waits for a person", now, found.given_up, rules.apply)
    return None


def in_short(plan: Plan) -> str:
    """`starts 2, replaces 1, stops 3`, in the words of a plan's own symbols."""
    kinds = (("starts", ("+",)), ("replaces", ("+/-", "-/+")), ("stops", ("-",)), ("changes", ("~",)))
    counted = ((word, sum(row.symbol in symbols for row in plan.rows)) for word, symbols in kinds)
    return ", ".join(f"{word} {number}" for word, number in counted if number) or "changes nothing that runs"


def given_up(old: Catalog | None, new: Catalog) -> tuple[str, ...]:
    """What `new` no longer has or asks less of: models, bounds, settings. One line each, with its place."""
    if old is None:
        return ()
    lines: list[str] = []
    for name, was in old.models.items():
        now = new.models.get(name)
        if now is None:
            lines.append(_line(old.place(f"model/{name}"), f"model {name} is removed"))
        elif now is not was and now != was:
            lines += [_line(new.place(f"model/{name}", field), said) for field, said in _less(was, now)]
    for name, profile in old.profiles.items():
        other = new.profiles.get(name)
        if other is not None and other is not profile and other != profile:
            lines += [_line(new.place(f"profile/{name}"), said) for said in _plainer(profile, other)]
    return shortened(lines)


def cut_short(
    old: Catalog | None, was: Mapping[str, str], new: Catalog, now: Mapping[str, str]
) -> tuple[str, ...]:
    """The changed documents whose last line has lost its end: what a write leaves that was interrupted.

    `was` and `now` are the files of `old` and `new`.
    """
    if old is None:
        return ()
    changed = [*_changed("model", old.models, new.models), *_changed("profile", old.profiles, new.profiles)]
    lines: list[str] = []
    for what in changed:
        before, after = old.place(what), new.place(what)
        if before is None or after is None:
            continue
        if was.get(before.file, "").endswith("\n") and not now[after.file].endswith("\n"):
            lines.append(f"{after.file}:{now[after.file].count(chr(10)) + 1}: the last line has lost its end")
    return shortened(lines)


def _changed(kind: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    """What is in both and not the same."""
    for name, now in new.items():
        was = old.get(name)
        if was is not None and was is not now and was != now:
            yield f"{kind}/{name}"


def shortened(found: Sequence[_Found], show: Callable[[_Found], str] = str) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    more = len(found) - SHOWN
    return (*map(show, found[:SHOWN]), *([f"and {more} more"] if more > 0 else []))


def _line(place: Place | None, said: str) -> str:
    return f"{place}: {said}" if place is not None else said


def _less(was: Model, now: Model) -> Iterator[tuple[str, str]]:
    """(field, what is less) of one model."""
    for bound in ("min", "max"):
        before, after = getattr(was.scaling, bound), getattr(now.scaling, bound)
        if after < before:
            yield f"scaling.{bound}", f"{was.name}: scaling.{bound} {before} -> {after}"
    for field in ("profiles", "aliases", "fallbacks"):
        for item in getattr(was, field):
            if item not in getattr(now, field):
                yield field, f"{was.name}: {field} loses {item}"
    if was.protect and not now.protect:
        yield "protect", f"{was.name}: protect is removed"


def _plainer(was: Profile, now: Profile) -> Iterator[str]:
    """What one profile no longer sets."""
    for field in dataclasses.fields(Profile):
        before, after = getattr(was, field.name), getattr(now, field.name)
        if before == after:
            continue
        if field.name in ("args", "env", "node_labels"):
            kept = dict(after)
            yield from (
                f"{was.name}: {field.name}.{key} is removed" for key in dict(before) if key not in kept
            )
        elif after == field.default:
            yield f"{was.name}: {field.name} is back at its default"


def news(before: Followed, after: Followed) -> list[tuple[Literal["catalog", "alarm"], str]]:
    """What is worth an entry in the journal, with its kind."""
    told: list[tuple[Literal["catalog", "alarm"], str]] = []
    if after.blind is not None and (before.blind is None or before.blind.said != after.blind.said):
        next_ = f"; {after.blind.next}" if after.blind.next else ""
        told.append(("alarm", f"{after.blind.said}; what stands goes on standing{next_}"))
    if before.blind is not None and after.blind is None:
        told.append(("catalog", "can be read again"))
    hold = after.hold
    if hold is not None and (before.mark, before.hold) != (after.mark, hold):
        said = "; ".join((hold.said, *hold.details[:1]))
        waits = hold.why == "pending"
        told.append(("catalog", f"pending: {said}") if waits else ("alarm", f"held: {said}. {hold.next}"))
    if before.hold is not None and hold is None:
        told.append(("catalog", "stands; nothing is held any more"))
    return told
