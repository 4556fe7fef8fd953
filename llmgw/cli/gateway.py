"""`llmgw gateway`: the front door. OpenAI clients talk to it; it talks to the ready replicas."""

import pathlib

import click

from llmgw.cli.options import Address, AddressOrOff, Duration, Pair
from llmgw.cli.security import Calling, calling_options


@click.command()
@click.option(
    "--listen", type=Address(), default="127.0.0.1:8000", show_default=True, help="For OpenAI clients."
)
@click.option(
    "--control", type=Address(), default="127.0.0.1:7600", show_default=True, help="The control plane."
)
@calling_options
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="The newest routing table."
)
@click.option(
    "--metrics", type=AddressOrOff(), default="127.0.0.1:9602", show_default=True, help="For Prometheus."
)
@click.option(
    "--name",
    default="",
    show_default="HOST:PORT",
    help="Its name for the control plane, which no other may have.",
)
@click.option(
    "--drain",
    type=Duration(),
    default="120s",
    show_default=True,
    help="How long a stop waits for what is under way.",
)
@click.option(
    "--reuse-port", is_flag=True, help="Share the port with other gateways: one a core, or old and new."
)
@click.option(
    "--timer", "timers", type=Pair(), multiple=True, help="PART.NAME=DURATION; `--timer ?=?` lists them all."
)
@click.option(
    "--access-log/--no-access-log", default=True, show_default=True, help="One line a request on stderr."
)
def command(
    *,
    listen: tuple[str, int],
    control: tuple[str, int],
    tls_ca: str,
    trusted_network: bool,
    token_file: pathlib.Path | None,
    given: pathlib.Path | None,
    metrics: tuple[str, int] | None,
    name: str,
    drain: float,
    reuse_port: bool,
    timers: tuple[tuple[str, str], ...],
    access_log: bool,
) -> None:
    """Answer OpenAI clients from the ready replicas, in the foreground, until SIGTERM or Ctrl-C.

    The control plane says where each model runs; while it is away, its last word holds. A stop lets
    what is under way end and answers what is new with 503; a second Ctrl-C does not wait.
    """
    from llmgw.cli.doing import gateway

    gateway.run(
        listen=listen,
        control=control,
        calling=Calling(tls_ca, trusted_network, token_file),
        given=given,
        metrics=metrics,
        name=name,
        drain=drain,
        reuse_port=reuse_port,
        timers=timers,
        access_log=access_log,
    )
