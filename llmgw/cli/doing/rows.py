"""Rows that the control plane answers, in every form people and scripts want. Used by `models`, `nodes`, `replicas`."""

from collections.abc import Callable
from typing import Any

import pydantic

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.watching import show as show_screen
from llmgw.kit.text import safe


def show(
    what: str,
    rows: Any,
    lines: Callable[..., list[str]],
    name: Callable[[Any], str],
    *,
    output: str,
    watch: bool,
    server: str | None,
    wanted: Callable[[Any], bool] = lambda _: True,
) -> None:
    """Print what GET /v1/`what` answers, which is a value of the type `rows`; only `wanted` ones.

    `lines(rows, wide=…)` is the table, `name(row)` what a script calls a row by.
    """
    client, adapter = Client(server), pydantic.TypeAdapter(rows)

    def look() -> str:
        found = tuple(row for row in client.read(rows, f"/v1/{what}") if wanted(row))
        if output == "name":
            return "\n".join(dict.fromkeys(safe(name(row)) for row in found))
        if output in ("json", "yaml"):
            items = adapter.dump_python(found, mode="json")
            return document(what, {"items": items}, output, line=watch and output == "json")
        return "\n".join(lines(found, wide=output == "wide"))

    show_screen(look, watch=watch, text=output in ("text", "wide"))
