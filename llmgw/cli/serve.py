"""`llmgw serve`: the control plane. Agents and gateways connect to it; the other verbs ask it."""

import pathlib
from typing import Literal

import click

from llmgw.cli.options import Address, AddressOrOff, Duration, hub_option, timers_option
from llmgw.cli.security import PATH, trusted_option


@click.command()
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:7600",
    show_default=True,
    help="For agents, gateways and the CLI.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name that the CLI may call it by; addresses, localhost and --listen's host always do.",
)
@click.option("--tls-cert", type=PATH, help="Speak TLS, with this certificate and its chain (PEM).")
@click.option("--tls-key", type=PATH, help="The key of --tls-cert (PEM).")
@trusted_option
@click.option(
    "--require-tokens",
    is_flag=True,
    help="Ask agents, gateways and the CLI for a token on loopback too; beyond it they always need one.",
)
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="Revisions, roster, epoch."
)
@click.option("--cluster", default="llmgw", show_default=True, help="The name people see in prompts.")
@click.option(
    "--heartbeat",
    type=Duration(positive=True),
    default="5s",
    show_default=True,
    help="How often agents say they are there.",
)
@click.option(
    "--catalog", type=click.Path(path_type=pathlib.Path), help="Follow the catalog below this directory."
)
@click.option(
    "--watch",
    type=click.Choice(["commits", "files", "off"]),
    help="How it is followed. [default: commits inside a git work tree, else files]",
)
@click.option(
    "--sync",
    type=click.Choice(["auto", "manual"]),
    default="manual",
    show_default=True,
    help="Whether what is valid and safe is adopted at once, or waits for `llmgw apply`.",
)
@click.option(
    "--ref", metavar="BRANCH", help="With commits: what to follow. [default: HEAD of the work tree]"
)
@click.option(
    "--settle", type=Duration(), default="750ms", show_default=True, help="How long nothing may change first."
)
@click.option(
    "--rescan",
    type=Duration(positive=True),
    default="5s",
    show_default=True,
    help="Look this often, events or not.",
)
@click.option(
    "--metrics",
    type=AddressOrOff(),
    default="127.0.0.1:9600",
    show_default=True,
    help="For Prometheus; where it is taken there are none.",
)
@hub_option
@timers_option
def command(
    *,
    listen: tuple[str, int],
    hosts: tuple[str, ...],
    tls_cert: pathlib.Path | None,
    tls_key: pathlib.Path | None,
    trusted_network: bool,
    require_tokens: bool,
    given: pathlib.Path | None,
    cluster: str,
    heartbeat: float,
    catalog: pathlib.Path | None,
    watch: Literal["commits", "files", "off"] | None,
    sync: Literal["auto", "manual"],
    ref: str | None,
    settle: float,
    rescan: float,
    metrics: tuple[str, int] | None,
    hub: str,
    timers: tuple[str, ...],
) -> None:
    """Run the control plane in the foreground, until SIGTERM or Ctrl-C. Engines go on without it.

    With --catalog it follows the catalog: what is committed there (or written, with --watch files) is
    read as a whole, checked and planned, and then adopted (--sync auto) or shown by `llmgw status`
    until somebody runs `llmgw apply`. What is broken is held, and the revision that stood goes on standing.
    """
    from llmgw.cli.doing import serve

    serve.run(
        listen=listen,
        hosts=hosts,
        tls_cert=tls_cert,
        tls_key=tls_key,
        trusted_network=trusted_network,
        require_tokens=require_tokens,
        given=given,
        cluster=cluster,
        heartbeat=heartbeat,
        timers=timers,
        catalog=catalog,
        watch=watch,
        sync=sync,
        ref=ref,
        settle=settle,
        rescan=rescan,
        metrics=metrics,
        hub=hub,
    )
