"""`llmgw gateway`: the front door. OpenAI clients talk to it; it talks to the ready replicas."""

import asyncio
import gc
import pathlib
import resource
import sys
from collections.abc import Callable

import click

from llmgw.cli.processes import Address, Duration, log_to_stderr, state_dir
from llmgw.gateway.serve import Bound, Settings, run


@click.command()
@click.option(
    "--listen", type=Address(), default="127.0.0.1:8000", show_default=True, help="For OpenAI clients."
)
@click.option(
    "--control", type=Address(), default="127.0.0.1:7600", show_default=True, help="The control plane."
)
@click.option(
    "--state-dir", "given", type=click.Path(path_type=pathlib.Path), help="The newest routing table."
)
@click.option(
    "--metrics", type=Address(), default="127.0.0.1:9602", show_default=True, help="For Prometheus."
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
    "--access-log/--no-access-log", default=True, show_default=True, help="One line a request on stderr."
)
def command(
    *,
    listen: tuple[str, int],
    control: tuple[str, int],
    given: pathlib.Path | None,
    metrics: tuple[str, int],
    name: str,
    drain: float,
    reuse_port: bool,
    access_log: bool,
) -> None:
    """Answer OpenAI clients from the ready replicas, in the foreground, until SIGTERM or Ctrl-C.

    The control plane says where each model runs; while it is away, its last word holds. A stop lets
    what is under way end and answers what is new with 503; a second Ctrl-C does not wait.
    """
    log_to_stderr()
    _allow_many_sockets()
    settings = Settings(
        state_dir=state_dir(given, "gateway"),
        host=listen[0],
        port=listen[1],
        control_host=control[0],
        control_port=control[1],
        metrics_host=metrics[0],
        metrics_port=metrics[1],
        name=name,
        reuse_port=reuse_port,
        drain=drain,
        access=sys.stderr.write if access_log else None,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run(settings, ready=_ready))


def _allow_many_sockets() -> None:
    """A shell's usual 1024 files are 500 streams: take as many as we may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _ready(bound: Bound) -> None:
    click.echo(f"listening on port {bound.port}, metrics on port {bound.metrics_port}", err=True)
    gc.collect()
    gc.freeze()  # what was built to stay is not looked at again: collections are not felt in the tail


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: a fifth less CPU a request."""
    try:
        import uvloop  # noqa: PLC0415 - a choice of the moment
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
