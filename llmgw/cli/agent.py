"""`llmgw agent`: the process of one GPU machine. It runs engines, keeps weights, and obeys its control plane."""

import pathlib
import platform

import click

from llmgw.cli.options import Address, AddressOrOff, Pair, Ports, hub_option
from llmgw.cli.security import Calling, calling_options


@click.command()
@click.option(
    "--control", type=Address(), default="127.0.0.1:7600", show_default=True, help="The control plane."
)
@calling_options
@click.option("--name", default=platform.node, show_default="host name", help="How people call this node.")
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="Identity, records, logs, weights."
)
@click.option("--cache", type=click.Path(path_type=pathlib.Path), help="Weights, if not below the state.")
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where its engines listen, for the others."
)
@click.option(
    "--ports",
    type=Ports(),
    default="20000-20999",
    show_default=True,
    help="For its engines; agents of one host need different ones.",
)
@click.option("--label", "labels", type=Pair(), multiple=True, help="For node_labels of profiles.")
@click.option("--engine", "engines", type=Pair(), multiple=True, help="An engine's program: llamacpp=/opt/…")
@click.option(
    "--timer", "timers", type=Pair(), multiple=True, help="PART.NAME=DURATION; `--timer ?=?` lists them all."
)
@click.option(
    "--metrics",
    type=AddressOrOff(),
    default="127.0.0.1:9601",
    show_default=True,
    help="For Prometheus; where it is taken there are none.",
)
@hub_option
def command(
    *,
    control: tuple[str, int],
    tls_ca: str,
    trusted_network: bool,
    token_file: pathlib.Path | None,
    name: str,
    given: pathlib.Path | None,
    cache: pathlib.Path | None,
    address: str,
    ports: tuple[int, int],
    labels: tuple[tuple[str, str], ...],
    engines: tuple[tuple[str, str], ...],
    timers: tuple[tuple[str, str], ...],
    metrics: tuple[str, int] | None,
    hub: str,
) -> None:
    """Run the agent of this machine in the foreground, until SIGTERM or Ctrl-C.

    Its engines go on without it: the next agent with this state directory takes them over. They end
    when the control plane stops them.
    """
    from llmgw.cli.doing import agent

    agent.run(
        control=control,
        calling=Calling(tls_ca, trusted_network, token_file),
        name=name,
        given=given,
        cache=cache,
        address=address,
        ports=ports,
        labels=labels,
        engines=engines,
        timers=timers,
        metrics=metrics,
        hub=hub,
    )
