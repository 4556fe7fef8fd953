"""`llmgw unit NAME`: the systemd unit of a process, for this installation. It prints, and changes nothing.

llmgw unit agent > /etc/systemd/system/llmgw-agent.service
"""

import click


@click.command()
@click.argument("name", type=click.Choice(["agent", "serve", "gateway"]))
def command(name: str) -> None:
    """Print the systemd unit of `llmgw agent`, `serve` or `gateway`, with the path of this llmgw.

    \b
    llmgw unit agent > /etc/systemd/system/llmgw-agent.service
    systemctl daemon-reload && systemctl enable --now llmgw-agent

    A restart of the agent's unit leaves its engines running: the next agent takes them over.
    """
    from llmgw.cli.doing import unit

    unit.run(name)
