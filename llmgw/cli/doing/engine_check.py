"""The work of `llmgw engine-check`."""

import click

from llmgw.cli.client import Client
from llmgw.cli.documents import document
from llmgw.cli.exits import Exit
from llmgw.kit.text import columns, safe


def run(node: str, output: str, server: str | None) -> int:
    """Print a row an engine; 1 where one does not run."""
    answer = Client(server).post("/v1/engine-check", {"node": node})
    engines = answer["engines"]
    if output != "text":
        click.echo(document("engine-check", answer, output))
    elif not engines:
        click.echo(f"{safe(answer['node'])} has found no engine")
    else:
        head = ["ENGINE", "RUNS", "SAYS", "PROGRAM"]
        body = [[e["name"], "yes" if e["works"] else "no", e["checked"] or "-", e["path"]] for e in engines]
        for line in columns([head, *([safe(str(cell)) for cell in cells] for cells in body)]):
            click.echo(line)
    return Exit.DONE if all(engine["works"] for engine in engines) else Exit.FAILED
