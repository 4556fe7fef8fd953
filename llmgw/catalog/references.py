"""Names that documents give each other: unknown, given twice, or leading in a ring (E301-E306, W503).

Called by `checks`, with the whole book but for names that stand twice in one list.
"""

import itertools
from collections.abc import Iterator

from llmgw.catalog.book import Book
from llmgw.catalog.diagnostics import Diagnostic, Related
from llmgw.catalog.documents import ModelDocument
from llmgw.catalog.reading import Written
from llmgw.catalog.suggest import did_you_mean
from llmgw.kit.text import count

MAX_COMPARISONS = 20_000
"""Of unknown names with known ones, per load: half a second of looking for what was meant."""

MAX_FOUND = 100_000
"""Problems between documents that are looked for: forty megabytes, where files allow for gigabytes."""


def unknown_names(everything: Book) -> Iterator[Diagnostic]:
    """E301, E302: profiles and fallbacks that nobody has. W503 where the file that may have them is broken."""
    unknown = list(itertools.islice(_unknown_names(everything), MAX_FOUND + 1))
    if everything.unread and unknown:
        said = f"{count(len(unknown), 'reference')} not checked: the names in this file could not be read"
        yield everything.unread[0].problem("W503", said, help="mend this file first")
        return
    targets = {"profiles": list(everything.profiles), "fallbacks": [*everything.models, *everything.aliases]}
    for number, (item, field, index, name) in enumerate(unknown):
        known = targets[field]
        hint = did_you_mean(name, known) if known and number * len(known) < MAX_COMPARISONS else ""
        code, noun = ("E301", "profile") if field == "profiles" else ("E302", "model or alias")
        yield item.problem(code, f"no {noun} is called `{name}`", field, index, help=hint)


def _unknown_names(everything: Book) -> Iterator[tuple[Written, str, int, str]]:
    profiles, names = everything.profiles.keys(), everything.models.keys() | everything.aliases.keys()
    for item in everything.written:
        model = item.document or (item.rest if item.name else None)
        if not isinstance(model, ModelDocument):
            continue
        if "profiles" not in item.wrong and not profiles >= set(model.profiles):
            yield from ((item, "profiles", *at) for at in enumerate(model.profiles) if at[1] not in profiles)
        if not names >= set(model.fallbacks):
            yield from ((item, "fallbacks", *at) for at in enumerate(model.fallbacks) if at[1] not in names)


def name_twice(everything: Book) -> Iterator[Diagnostic]:
    """E303: two models or two profiles of one name."""
    for item in everything.written:
        owners = everything.models if item.kind == "model" else everything.profiles
        first = owners.get(item.name)
        if item.kind and first is not None and first is not item:
            earlier = Related(first.tree.spot(("name",)), "first here")
            said = f"two {item.kind}s are called `{item.name}`"
            yield item.problem("E303", said, "name", help="rename one of them", related=(earlier,))


def alias_twice(everything: Book) -> Iterator[Diagnostic]:
    """E304: an alias that is another alias or a model's name."""
    for item in everything.written:
        for index, alias in enumerate(item.aliases):
            owner, at = everything.aliases[alias]
            if alias in everything.models:
                model = everything.models[alias]
                yield _clash(item, index, f"alias `{alias}` is the name of a model", model, ("name",))
            elif owner is not item:
                yield _clash(item, index, f"two models have the alias `{alias}`", owner, ("aliases", at))


def _clash(item: Written, index: int, said: str, owner: Written, path: tuple[str | int, ...]) -> Diagnostic:
    earlier = Related(owner.tree.spot(path), "here too")
    return item.problem("E304", said, "aliases", index, help="give it to one of them", related=(earlier,))


def listed_twice(item: Written, model: ModelDocument) -> Iterator[Diagnostic]:
    """E305: a name that stands twice in one list."""
    for field in ("profiles", "aliases", "fallbacks"):
        names: tuple[str, ...] = getattr(model, field)
        if len(set(names)) == len(names):
            continue
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name in seen:
                said = f"`{name}` stands twice in `{field}`"
                yield item.problem("E305", said, field, index, help="remove one")
            seen.add(name)


def fallback_ring(everything: Book) -> Iterator[Diagnostic]:
    """E306: fallbacks that lead back to where they began, through aliases too."""
    done: set[str] = set()
    for item, _ in everything.model_documents():
        if item.name not in done:
            yield from _rings_from(item.name, everything, done)


def _rings_from(start: str, everything: Book, done: set[str]) -> Iterator[Diagnostic]:
    """Depth first without recursion; each edge back to the path under way closes one ring."""
    path: dict[str, Iterator[tuple[int, str]]] = {start: _fallbacks(start, everything)}
    while path:
        last = next(reversed(path))
        step = next(path[last], None)
        if step is None:
            done.add(last)
            del path[last]
        elif step[1] in path:
            names = list(path)
            yield _ring(names[names.index(step[1]) :], step[0], everything)
        elif step[1] not in done:
            path[step[1]] = _fallbacks(step[1], everything)


def _fallbacks(name: str, everything: Book) -> Iterator[tuple[int, str]]:
    document = everything.models[name].document
    if isinstance(document, ModelDocument):
        for index, fallback in enumerate(document.fallbacks):
            target = everything.model_called(fallback)
            if target in everything.models:
                yield index, str(target)


def _ring(ring: list[str], index: int, everything: Book) -> Diagnostic:
    shown = ring if len(ring) <= 8 else [*ring[:7], f"… {len(ring) - 7} more"]
    said = f"fallbacks go round in a ring: {' → '.join([*shown, ring[0]])}"
    return everything.models[ring[-1]].problem(
        "E306", said, "fallbacks", index, help="remove one of these fallbacks"
    )
