"""The work of `llmgw serve`: options → settings, and the control plane until a signal."""

import pathlib

from llmgw.cli.processes import log_to_stderr, read_timers, run_until_signal, state_dir
from llmgw.control import serve as control


def run(
    listen: tuple[str, int],
    given: pathlib.Path | None,
    cluster: str,
    heartbeat: float,
    timers: tuple[str, ...],
) -> None:
    """Run until SIGTERM or Ctrl-C. `heartbeat` in seconds."""
    log_to_stderr()
    settings = control.Settings(
        state_dir=state_dir(given, "serve"),
        host=listen[0],
        port=listen[1],
        cluster=cluster,
        heartbeat=heartbeat,
        timers=read_timers(timers),
    )
    run_until_signal(lambda: control.run(settings))
