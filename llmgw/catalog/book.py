"""Every document of a catalog beside the others: who has which name.

Made by `load` of all that `reading` read; `references` and `checks` compare with it, `resolve`
turns it into the catalog.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmgw.catalog.documents import ModelDocument
from llmgw.catalog.reading import Written


@dataclasses.dataclass(frozen=True, slots=True)
class Book:
    """Documents to compare, and who has which name (where two have it, the first by file name).

    `written` is every document, or those that a rule is asked about beside the names of all. `unread` are the files whose names nobody knows: references may point there.
    """

    written: Sequence[Written]
    models: Mapping[str, Written]
    profiles: Mapping[str, Written]
    aliases: Mapping[str, tuple[Written, int]]
    unread: Sequence[Written]

    def model_documents(self) -> Iterator[tuple[Written, ModelDocument]]:
        for item in self.written:
            if isinstance(item.document, ModelDocument):
                yield item, item.document

    def model_called(self, name: str) -> str | None:
        """The model that a name or an alias stands for."""
        if name in self.models:
            return name
        return self.aliases[name][0].name if name in self.aliases else None


def book(written: Sequence[Written]) -> Book:
    """Index `written`, which is in the order of file names."""
    models: dict[str, Written] = {}
    profiles: dict[str, Written] = {}
    aliases: dict[str, tuple[Written, int]] = {}
    for item in written:
        if item.kind and item.name:
            (models if item.kind == "model" else profiles).setdefault(item.name, item)
        for index, alias in enumerate(item.aliases):
            aliases.setdefault(alias, (item, index))
    unread = [item for item in written if not (item.kind and item.name) and not _empty(item)]
    return Book(written, models, profiles, aliases, unread)


def amended(everything: Book, written: Sequence[Written], changed: Iterable[Written]) -> Book:
    """`everything` with `changed` in the place of the documents of their kinds and names, all of them `written`.

    Needs a book in which no rule found an error, and changed documents that keep every alias they had.
    """
    models, profiles = dict(everything.models), dict(everything.profiles)
    aliases = dict(everything.aliases)
    for item in changed:
        owners = models if item.kind == "model" else profiles
        before, owners[item.name] = owners[item.name], item
        for index, alias in enumerate(item.aliases):
            if alias not in aliases or aliases[alias][0] is before:
                aliases[alias] = (item, index)
    return Book(written, models, profiles, aliases, ())


def _empty(item: Written) -> bool:
    return item.tree.parsed and item.tree.value is None
