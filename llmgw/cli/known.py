"""Names that an option picks by: one that nobody has is said so, where nothing would be shown for it.

Used by `replicas` and `events`. The control plane tells the names.
"""

from collections.abc import Iterable
from typing import Literal

from llmgw.catalog.suggest import did_you_mean
from llmgw.cli.client import Client
from llmgw.errors import Failed

Kind = Literal["models", "aliases", "nodes", "replicas"]


def check_known(client: Client, asked: Iterable[str], *kinds: Kind) -> None:
    """Raise Failed for the first of `asked` that is the name of none of these."""
    names = tuple(asked)
    if not names:
        return
    told = client.get("/v1/names")
    known = {name for kind in kinds for name in told[kind]}
    if "models" in kinds:  # a model that the catalog no longer has may still run
        known |= {replica.rpartition("/")[0] for replica in told["replicas"]}
    for name in names:
        if name not in known:
            raise Failed(
                f"cannot find {name}: none of the {' and '.join(kinds)} has this name",
                help=did_you_mean(name, sorted(known)) or f"llmgw {kinds[0]}",
            )
