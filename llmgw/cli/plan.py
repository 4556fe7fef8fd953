"""`llmgw plan`: what would happen, in order, and why. Changes nothing."""

import pathlib

import click

from llmgw.cli import names
from llmgw.cli.options import PATH, Sink, catalog_argument, server_option

FAIL_ON = ("outage", "unplaced", "stop", "guard", "dirty", "unreachable")


@click.command()
@catalog_argument
@click.option("--ref", metavar="REF", help="Plan the catalog of this commit; the work tree is not read.")
@click.option(
    "--base",
    metavar="REF",
    help="Plan the merge into REF, and tell apart what REF has pending. Reads commits only.",
)
@click.option("--fleet", type=PATH, help="Plan against this `llmgw fleet export`; asks no control plane.")
@click.option(
    "--only",
    multiple=True,
    metavar="MODEL",
    shell_complete=names.models,
    help="Show only this model (patterns too).",
)
@click.option(
    "--replace",
    multiple=True,
    metavar="NAME",
    shell_complete=names.replicas,
    help="What if this replica, or model, were rebuilt.",
)
@click.option(
    "--without-node",
    "without",
    multiple=True,
    metavar="NODE",
    shell_complete=names.nodes,
    help="What if it were gone.",
)
@click.option(
    "--with-node", "with_", multiple=True, type=PATH, metavar="FILE", help="What if there were this one too."
)
@click.option("--summary", is_flag=True, help="A line an action.")
@click.option(
    "--explain",
    is_flag=True,
    help="Every term, refusal and command line, and who wrote the lines that cause it.",
)
@click.option("--save", type=PATH, metavar="FILE", help="Keep the plan, for `llmgw show` and `apply --plan`.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when there are changes.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="WHAT",
    help=f"Exit 7 where it has: {', '.join(FAIL_ON)} (with commas).",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
@click.option(
    "--also", multiple=True, type=Sink(), metavar="FORMAT:FILE", help="Write it to a file too; repeatable."
)
@server_option
def command(
    *,
    path: pathlib.Path,
    ref: str | None,
    base: str | None,
    fleet: pathlib.Path | None,
    only: tuple[str, ...],
    replace: tuple[str, ...],
    without: tuple[str, ...],
    with_: tuple[pathlib.Path, ...],
    summary: bool,
    explain: bool,
    save: pathlib.Path | None,
    detailed_exitcode: bool,
    fail_on: tuple[str, ...],
    output: str,
    also: tuple[tuple[str, pathlib.Path], ...],
    server: str | None,
) -> int:
    """Rehearse the catalog below PATH (default: ./catalog) on the fleet as it is now.

    Prints every action in the order it would happen, with its node, its reason and the catalog line that
    causes it; what it takes of memory, disk and time, and what the estimates are from; then the lowest
    number of ready replicas on the way, and what cannot be placed, why, and what would help.

    What is supposed (--without-node, --with-node, --replace) is said in the plan, and such a plan is not applied.
    A FILE of --with-node is YAML; only `name` is needed:

    \b
    name: gpu-b3
    gpus: [{type: H100, memory: 80GiB, count: 8}]
    engines: [vllm 0.19]
    cpu_cores: 64
    memory: 512GiB
    disk: 3.5TB
    labels: {zone: b}

    --only is for looking at a long plan: it is made of the whole catalog all the same, has that plan's id, says
    what it leaves out, and is not saved.
    """
    from llmgw.cli.doing import plan

    wanted = tuple(word.strip() for words in fail_on for word in words.split(","))
    for word in wanted:
        if word not in FAIL_ON:
            raise click.UsageError(f"--fail-on knows {', '.join(FAIL_ON)}, not {word!r}")
    if save is not None and only:
        raise click.UsageError("--save keeps whole plans: leave --only out")
    source = plan.Source(path, ref or "", base or "", fleet, server)
    supposed = plan.Supposed(only, replace, without, with_)
    shown = plan.Shown(output, also, summary=summary, explain=explain, save=save)
    return plan.run(source, supposed, shown, wanted, detailed_exitcode=detailed_exitcode)
