"""The work of `llmgw serve`: options → settings, and the control plane until a signal."""

import os
import pathlib
from typing import Literal

import click

from llmgw.catalog.hub import Hub
from llmgw.cli.limits import read_limits
from llmgw.cli.processes import log_to_stderr, read_timers, run_until_signal, state_dir
from llmgw.cli.security import listened
from llmgw.control import serve as control
from llmgw.control.settling import Pace
from llmgw.kit.descriptors import raise_limit
from llmgw.kit.gathering import gathering_loop
from llmgw.kit.hosts import is_loopback
from llmgw.kit.systemd import tell


def run(
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
    timers: tuple[str, ...],
    catalog: pathlib.Path | None,
    watch: Literal["commits", "files", "off"] | None,
    sync: Literal["auto", "manual"],
    ref: str | None,
    settle: float,
    rescan: float,
    metrics: tuple[str, int] | None,
    hub: str,
) -> None:
    """Run until SIGTERM or Ctrl-C. `heartbeat`, `settle` and `rescan` in seconds."""
    log_to_stderr()
    raise_limit()
    tls = listened(listen[0], tls_cert, tls_key, trusted=trusted_network)
    settings = control.Settings(
        state_dir=state_dir(given, "serve"),
        host=listen[0],
        port=listen[1],
        hosts=hosts,
        tls=tls,
        tokens=require_tokens or not is_loopback(listen[0]),
        cluster=cluster,
        heartbeat=heartbeat,
        timers=read_timers(timers, heartbeat),
        following=following(catalog, watch, sync, ref, Pace(settle, rescan)),
        guards=read_limits(catalog),
        metrics=metrics,
        hub=Hub(hub.rstrip("/"), os.environ.get("HF_TOKEN", "")),
    )
    run_until_signal(lambda: control.run(settings, ready=lambda *_: tell("READY=1")), gathering_loop)


def following(
    path: pathlib.Path | None,
    watch: Literal["commits", "files", "off"] | None,
    sync: Literal["auto", "manual"],
    ref: str | None,
    pace: Pace,
) -> control.Following | None:
    """What the options ask for. Raises click.UsageError where they contradict each other."""
    if path is None:
        if watch not in (None, "off"):
            raise click.UsageError(f"--watch {watch} needs --catalog PATH")
        return None
    if watch == "off":
        return None
    how = watch or control.usual_watch(path)
    if ref is not None and how == "files":
        raise click.UsageError("--ref needs --watch commits: files have no branch")
    return control.Following(path, how, sync, ref or "HEAD", pace)
