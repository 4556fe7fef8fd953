"""Why what found no place fits nowhere, told again only for nodes on which that changed.

A fleet that is full has many replicas without a place and a thousand nodes to say so; models that ask
for the same share one answer. Used by `reconcile` for the last pass of an instant.
"""

import dataclasses
from collections.abc import Iterable

from llmgw.catalog.model import Profile
from llmgw.planning.placement import NoFit, Request, Site, refusals, too_few
from llmgw.planning.stock import Stock

Asked = tuple[Profile, frozenset[str], frozenset[str], int, str]
"""What a request's refusals follow from: profile, avoided nodes and cards, bytes to fetch, weights if a node
holds them."""


@dataclasses.dataclass(slots=True)
class _Answer:
    """One answer: by node as (site, shards it had, refusals), and all of it at a version of the stock.

    `short` = of a gang, which nodes would take a shard.
    """

    by_node: dict[str, tuple[Site, int, list[NoFit]]]
    version: int = -1
    whole: tuple[NoFit, ...] = ()
    short: str = ""


class Explanations:
    """Answers by what was asked; those that nobody asked for lately are dropped."""

    def __init__(self) -> None:
        self._answers: dict[Asked, _Answer] = {}
        self._kept: dict[Asked, _Answer] = {}

    def of(self, request: Request, stock: Stock, nodes: Iterable[str]) -> tuple[tuple[NoFit, ...], str]:
        """Every reason of every one of `nodes`, in their order; and of a gang that some of them are too few."""
        held = request.cache_name if stock.size(request.cache_name) else ""
        size = request.source_bytes if request.model.source.fetched else 0
        asked = (request.profile, request.avoid, request.spare, size, held)
        answer = self._kept.get(asked) or self._answers.get(asked) or _Answer({})
        self._kept[asked] = answer
        if answer.version != stock.version:
            answer.by_node = {name: _renewed(answer, name, stock.sites[name], request) for name in nodes}
            answer.whole = tuple(said for _, _, told in answer.by_node.values() for said in told)
            if request.profile.nodes > 1:
                willing = (site for site, _, told in answer.by_node.values() if not told)
                answer.short = too_few(willing, request)
            answer.version = stock.version
        return answer.whole, answer.short

    def told(self) -> None:
        """Everything was asked for; what was not is forgotten."""
        self._answers, self._kept = self._kept, {}


def _renewed(answer: _Answer, name: str, site: Site, request: Request) -> tuple[Site, int, list[NoFit]]:
    known = answer.by_node.get(name)
    if known is not None and known[0] is site and known[1] == site.room.shards:
        return known
    return site, site.room.shards, refusals([site], request)
