"""Names for completion, from disk: what the catalog's files are called, what a control plane told last.

`client` writes what it heard, the verbs' arguments read it at a TAB. Nothing here asks the network or parses
YAML, and nothing fails: a TAB that knows nothing offers nothing. Light: completion imports it.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

FRESH = 5.0
"""Seconds in which what is known is not asked for again."""

MOST_CLUSTERS = 32
MOST_FILES = 5000
MOST_PLANS = 10
_SERVER = "127.0.0.1:7600"


def directory() -> pathlib.Path:
    """`$XDG_CACHE_HOME/llmgw`."""
    home = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path("~/.cache").expanduser())
    return pathlib.Path(home) / "llmgw"


def fresh(server: str) -> bool:
    """Whether what is known of this control plane was written just now."""
    from llmgw.kit.clock import SystemClock

    with contextlib.suppress(OSError):
        for path in _files():
            age = SystemClock().wall().timestamp() - path.stat().st_mtime
            if 0 <= age < FRESH and _read(path).get("server") == server:
                return True
    return False


def remember(server: str, told: Mapping[str, Any]) -> None:
    """Keep what a control plane told. Raises OSError."""
    import json
    import tempfile

    seen = {"seen_plans": known(server).get("seen_plans", {})}
    cluster = "".join(c if c.isalnum() or c in "-_." else "_" for c in str(told.get("cluster", "")))[:100]
    place = directory() / (cluster.strip(".") or "llmgw")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=place, delete=False) as file:
        json.dump({**seen, **told, "server": server}, file)
    pathlib.Path(file.name).replace(place / "names.json")


def saw_plan(server: str, plan: str) -> None:
    """A plan was shown: its id is offered from now on. Never fails."""
    told = known(server)
    if told:
        seen = {**told.get("seen_plans", {}), plan: "shown lately"}
        newest = dict(list(seen.items())[-MOST_PLANS:])
        with contextlib.suppress(OSError):
            remember(server, {**told, "seen_plans": newest})


def known(server: str | None) -> Mapping[str, Any]:
    """What was told last, of the control plane that this command would ask."""
    wanted = server or os.environ.get("LLMGW_SERVER") or _from_toml() or _SERVER
    found = (_read(path) for path in _files())
    return next((told for told in found if told.get("server") == wanted), {})


def _files() -> list[pathlib.Path]:
    try:
        paths = list(directory().glob("*/names.json"))[:MOST_CLUSTERS]
        return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []


def _read(path: pathlib.Path) -> Mapping[str, Any]:
    import json

    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _from_toml() -> str:
    """`server` of the nearest llmgw.toml, as `client` finds it."""
    from llmgw.cli.found import from_here
    from llmgw.errors import Failed

    try:
        found = from_here()
    except (Failed, OSError):
        return ""
    return str(found.table.get("server", "")) if found is not None else ""


# --- completion -------------------------------------------------------------------------------


def models(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models and aliases."""
    return _items(incomplete, _told(ctx, "models"), _in_catalog("model"), _told(ctx, "aliases"))


def profiles(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profiles, by the names of their files."""
    return _items(incomplete, _in_catalog("profile"))


def nodes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes."""
    return _items(incomplete, _told(ctx, "nodes"))


def replicas(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Replicas, and models, whose only replica is meant by their name."""
    return _items(incomplete, _told(ctx, "replicas"), _told(ctx, "models"))


def plans(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Plans that were shown lately, and the one that was applied."""
    return _items(incomplete, _told(ctx, "seen_plans"), _told(ctx, "plans"))


def anything(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models, replicas, nodes and gateways."""
    kinds = [_told(ctx, kind) for kind in ("models", "aliases", "replicas", "nodes", "gateways")]
    return _items(incomplete, *kinds, _in_catalog("model"))


def _items(incomplete: str, *sets: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    found: dict[str, str] = {}
    for name, said in (pair for pairs in sets for pair in pairs):
        if name.startswith(incomplete) and name.isprintable():
            found.setdefault(name, said)
    return [CompletionItem(name, help=said or None) for name, said in sorted(found.items())]


def _told(ctx: click.Context, kind: str) -> Iterator[tuple[str, str]]:
    """(name, what is said of it) of one kind."""
    told = known(ctx.params.get("server")).get(kind, {})
    for name, said in told.items() if isinstance(told, dict) else ():
        yield str(name), str(said)


def _in_catalog(kind: str) -> Iterator[tuple[str, str]]:
    """Names of the files below ./catalog that are of this kind, as far as their directory tells."""
    other = {"model": "profiles", "profile": "models"}[kind]
    try:
        for number, path in enumerate(pathlib.Path("catalog").rglob("*.yaml")):
            if number >= MOST_FILES:
                return
            if path.parent.name != other and not path.name.startswith("."):
                yield path.stem, ""
    except OSError:
        return
