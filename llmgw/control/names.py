"""Names that people write to ids: a node by its name or id, a model by its name or alias. Pure; used by `hands` and `logs`.

A name that two things have is refused with both; one that nothing has, with the nearest.
"""

from collections.abc import Iterable

from llmgw.catalog.model import Catalog
from llmgw.catalog.suggest import did_you_mean
from llmgw.errors import LlmgwError
from llmgw.fleet.world import Fleet

SHOWN = 12
"""Names that a refusal lists where none is near."""


class NoSuchName(LlmgwError):
    """Nothing, or more than one thing, has this name."""


def node_named(name: str, fleet: Fleet) -> str:
    """The id of the node that people call `name`; an id is that node, whoever else calls itself so. Raises NoSuchName."""
    ids = sorted(fleet.roster | fleet.nodes.keys())
    found = [name] if name in ids else [node for node in ids if fleet.name(node) == name]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(f"{fleet.name(node)} ({node})" for node in found)
        raise NoSuchName(f"cannot tell which node {name} is: {both} are called so", help="write its id")
    raise NoSuchName(
        f"cannot find node {name}: no node has this name", help=_near(name, map(fleet.name, ids))
    )


def model_named(name: str, catalog: Catalog | None, fleet: Fleet) -> str:
    """The model that is called `name`, also by an alias of it. Raises NoSuchName."""
    models = catalog.models if catalog is not None else {}
    if name in models:
        return name
    aliases = {alias: model.name for model in models.values() for alias in model.aliases}
    if name in aliases:
        return aliases[name]
    running = {shard.spec.model for shard in fleet.shards.values()}
    if name in running:
        return name
    known = sorted({*models, *aliases, *running})
    raise NoSuchName(f"cannot find model {name}: the catalog that stands has none", help=_near(name, known))


def _near(name: str, names: Iterable[str]) -> str:
    known = sorted(set(names))
    if near := did_you_mean(name, known):
        return near
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    verb = "is" if len(known) == 1 else "are"
    return f"there {verb} {', '.join(known[:SHOWN])}{more}" if known else "there are none yet"
