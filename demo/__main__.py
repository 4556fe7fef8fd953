"""`make up`: serves the demo's model on loopback and runs `llmgw up` beside it, until Ctrl-C.

The weights are served by a thread of this process and llmgw is its child, so nothing can be left
behind: a terminal sends Ctrl-C to both, a SIGTERM is passed on, and the exit code is llmgw's.
"""

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
    command = [str(SCRIPTS / "llmgw"), "up", "catalog", "--state-dir", str(STATE / "state"), *arguments]
    return beside(weights.packaged(), weights.PORT, command)


def beside(model: pathlib.Path, port: int, command: list[str]) -> int:
    """Run `command` to its end while `model` is served on `port`. Returns its exit code."""
    try:
        server = weights.Server({model.name: model}, port)
    except OSError as error:
        said = f"cannot serve the demo's model on 127.0.0.1:{port}: {error.strerror}"
        print(f"{said} (is another demo running?)", file=sys.stderr)
        return 1
    with weights.serving(server):
        print(f"serving {server.url(model.name)}", file=sys.stderr)
        return follow(command)


def follow(command: list[str]) -> int:
    """Run a child that ends by itself on the signals we get. Returns its exit code."""
    # The engine of this environment is found on the path.
    path = os.pathsep.join((str(SCRIPTS), os.environ.get("PATH", os.defpath)))
    # The child hears Ctrl-C too, and drains: we wait for it. A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(command, env={**os.environ, "PATH": path}) as child:
        signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
