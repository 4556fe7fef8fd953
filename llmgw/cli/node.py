"""`llmgw node`: hands on one node. Stops nothing at once: what has to go drains first."""

import click

from llmgw.cli import names
from llmgw.cli.options import Duration, server_option

NODE = click.argument("node", shell_complete=names.nodes)
REASON = click.option("--reason", default="", help="Why; shown wherever it has an effect.")
FOR = click.option(
    "--for", "seconds", type=Duration(positive=True), help="Until it ends by itself: 2h, 3d. [default: never]"
)
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group()
def command() -> None:
    """Cordon, drain or forget a node, named as `llmgw nodes` shows it or by its id.

    Every one of these is an event with who and why, and stays until it is lifted or its time is over, also
    over restarts of the control plane.
    """


@command.command()
@NODE
@REASON
@FOR
@server_option
def cordon(node: str, reason: str, seconds: float | None, server: str | None) -> int:
    """Place nothing new on NODE; what runs there goes on."""
    from llmgw.cli.doing import node as work

    return work.act("cordon", node, server, reason=reason, seconds=seconds)


@command.command()
@NODE
@server_option
def uncordon(node: str, server: str | None) -> int:
    """Place on NODE again; ends a drain too, and what was not stopped yet stays."""
    from llmgw.cli.doing import node as work

    return work.act("uncordon", node, server)


@command.command()
@NODE
@REASON
@FOR
@YES
@click.option("--wait", is_flag=True, help="Follow until nothing runs there any more.")
@click.option(
    "--timeout", type=Duration(positive=True), default="30m", show_default=True, help="With --wait: at most."
)
@server_option
def drain(
    node: str, reason: str, seconds: float | None, yes: bool, wait: bool, timeout: float, server: str | None
) -> int:
    """Move every replica away from NODE, each once its successor is ready, and place nothing new there.

    Shows what that does and asks. `llmgw node uncordon` ends it.
    """
    from llmgw.cli.doing import node as work

    return work.planned(
        "drain", node, server, yes=yes, reason=reason, seconds=seconds, wait=wait, limit=timeout
    )


@command.command()
@NODE
@REASON
@YES
@server_option
def confirm_lost(node: str, reason: str, yes: bool, server: str | None) -> int:
    """Say that NODE is gone: what ran there is rebuilt elsewhere at once, and mass silence is lifted.

    Only for a node that is away, and only where somebody looked: engines that live on would serve twice.
    Shows what follows and asks. It ends when the node speaks again.
    """
    from llmgw.cli.doing import node as work

    return work.planned("confirm-lost", node, server, yes=yes, reason=reason)


@command.command()
@NODE
@REASON
@YES
@server_option
def forget(node: str, reason: str, yes: bool, server: str | None) -> int:
    """Take NODE out of the roster: no restart waits for it, no screen shows it.

    Refused while it is connected, and while nobody confirmed that what ran there is gone. Shows what
    follows and asks. Its agent may come back any time: it is a new node then.
    """
    from llmgw.cli.doing import node as work

    return work.planned("forget", node, server, yes=yes, reason=reason)
