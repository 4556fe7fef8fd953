"""`make up`: serves the demo's model on loopback and runs `llmgw up` beside it, until Ctrl-C.

The weights are served by a thread of this process and llmgw is its child, so nothing can be left
behind: a terminal sends Ctrl-C to both, a SIGTERM is passed on, and the exit code is llmgw's.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig

from demo import weights

STATE = pathlib.Path(".demo")
SCRIPTS = pathlib.Path(sysconfig.get_path("scripts"))


def main(arguments: list[str]) -> int:
    """Run the demo; `arguments` go to `llmgw up`, after its own. Returns the exit code."""
    STATE.mkdir(exist_ok=True)
    model = weights.packaged()
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(weights.serving({model.name: model}, weights.PORT))
        except OSError as error:
            said = f"cannot serve the demo's model on 127.0.0.1:{weights.PORT}: {error.strerror}"
            print(f"{said} (is another demo running?)", file=sys.stderr)
            return 1
        print(f"serving {server.url(model.name)}", file=sys.stderr)
        return up(arguments)


def up(arguments: list[str]) -> int:
    """`llmgw up catalog/`, with the engine of this environment on its path. Returns its exit code."""
    path = os.pathsep.join((str(SCRIPTS), os.environ.get("PATH", os.defpath)))
    command = [str(SCRIPTS / "llmgw"), "up", "catalog", "--state-dir", str(STATE / "state"), *arguments]
    # The child hears Ctrl-C itself, and drains; this process waits for it. A handler, unlike
    # SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(command, env={**os.environ, "PATH": path}) as child:
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
