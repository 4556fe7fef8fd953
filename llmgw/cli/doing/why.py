"""The work of `llmgw why`: the control plane's answers as text, or as they are."""

from collections.abc import Iterator

import pydantic

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.watching import show
from llmgw.kit.text import columns, count, safe
from llmgw.planning.why import Why


def run(name: str, output: str, server: str | None) -> None:
    """Print an answer for everything that has this name."""
    client = Client(server)

    def look() -> str:
        found: list[Why] = client.read(list[Why], "/v1/why", name=name)
        if output == "text":
            return "\n".join(line for why in found for line in why_lines(why))
        items = pydantic.TypeAdapter(list[Why]).dump_python(found, mode="json")
        return document("why", {"items": items}, output)

    show(look, watch=False, text=output == "text")


def why_lines(why: Why) -> Iterator[str]:
    """`model qwen  Pending`, what there is to say, the nodes that do not fit, what would help."""
    yield f"{why.kind} {safe(why.name)}  {safe(why.state)}"
    yield from (f"  {safe(said)}" for said in why.said)
    if why.rejected:
        rows = [[each.node, said] for each in why.rejected for _, said in each.reasons]
        shown = ["", *(node for node, _ in rows)]
        body = [
            ["" if node == before else node, said] for before, (node, said) in zip(shown, rows, strict=False)
        ]
        yield from (
            f"  {line}" for line in columns([["NODE", "WHY NOT"], *([safe(c) for c in r] for r in body)])
        )
    if why.more_nodes:
        yield f"  and {count(why.more_nodes, 'node')} more"
    yield from (f"  would fit: {safe(way)}" for way in why.would_fit)
    if why.try_next:
        yield f"  next: {safe(why.try_next)}"
