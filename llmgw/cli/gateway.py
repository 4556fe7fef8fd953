"""`llmgw gateway`: the front door of the fleet."""

import asyncio
import logging
import os
import pathlib
from collections.abc import Callable

import click


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT; an IPv6 host stands in brackets."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"cannot read {value!r} as HOST:PORT, such as 127.0.0.1:8000", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


def _state_dir() -> pathlib.Path:
    base = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    return pathlib.Path(base) / "llmgw" / "gateway"


@click.command()
@click.option("--listen", type=Address(), default="127.0.0.1:8000", show_default=True, envvar="LLMGW_LISTEN")
@click.option(
    "--control", type=Address(), default="127.0.0.1:7600", show_default=True, envvar="LLMGW_CONTROL"
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    default=_state_dir,
    show_default="$XDG_STATE_HOME/llmgw/gateway",
    help="Where the newest routing table is kept.",
)
@click.option(
    "--metrics", type=Address(), default="127.0.0.1:9602", show_default=True, help="For Prometheus."
)
@click.option("--name", default="", help="Its name for the control plane.  [default: host name and pid]")
@click.option(
    "--reuse-port", is_flag=True, help="Let several gateways share the port: one a core, or a restart."
)
def command(
    listen: tuple[str, int],
    control: tuple[str, int],
    state_dir: pathlib.Path,
    metrics: tuple[str, int],
    name: str,
    reuse_port: bool,
) -> None:
    """Answer OpenAI clients from the ready replicas of the fleet.

    The control plane says where each model runs; while it is away, its last word holds. SIGTERM
    lets what is under way end, and answers what is new with 503.
    """
    from llmgw.gateway import serve  # noqa: PLC0415 - so that --help does not load the data plane

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = serve.Settings(
        host=listen[0],
        port=listen[1],
        control_host=control[0],
        control_port=control[1],
        state_dir=state_dir,
        metrics_host=metrics[0],
        metrics_port=metrics[1],
        reuse_port=reuse_port,
        name=name or serve.own_name(),
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve.run(settings, ready=_said))


def _said(bound: object) -> None:
    click.echo(f"listening: {bound}", err=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: a fifth less CPU a request."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
