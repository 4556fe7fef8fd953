"""A real llama-server with a scripted model: what the gateway and the agent are tested against.

Ready in a tenth of a second and 35 MiB each, so a test may run several. The path comes from the
environment that the tests run in; `requirements/engine.lock` put it there.
"""

import contextlib
import http.client
import json
import pathlib
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.waiting import wait_for

SCRIPTS = pathlib.Path(sysconfig.get_path("scripts"))
LLAMA_SERVER = SCRIPTS / "llama-server-vulkan"
"""A console script that replaces itself by the server: the pid stays, signals arrive."""
RPC_SERVER = SCRIPTS / "ggml-rpc-server-vulkan"
"""The worker rank of a llama.cpp gang, of the same build."""


class Engine:
    """A running llama-server. `name` is the model name that it serves."""

    def __init__(self, name: str, port: int, process: Process) -> None:
        self.name = name
        self.port = port
        self.process = process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def healthy(self) -> bool:
        """Whether /health says 200. Refused and loading are both no."""
        try:
            return ask(self.port, "GET", "/health")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    def chat(self, prompt: str = "hello", **fields: Any) -> str:
        """The content of one plain chat completion."""
        return chat(self.port, self.name, prompt, **fields)


def start(
    processes: Processes, weights: pathlib.Path, *, name: str = "scripted", args: Sequence[str] = ()
) -> Engine:
    """Start a server of `weights` on a free port; it lives as long as `processes`. Not yet ready."""
    port = free_port()
    argv = [
        str(LLAMA_SERVER), "-m", str(weights), "--alias", name, "--host", "127.0.0.1", "--port", str(port),
        "-c", "4096", "-np", "2", "-t", "1", "--metrics", "--no-ui", *args,
    ]  # fmt: skip
    return Engine(name, port, processes.start(f"engine-{name}-{port}", argv))


@contextlib.contextmanager
def running(
    directory: pathlib.Path, weights: pathlib.Path, *, name: str = "scripted", args: Sequence[str] = ()
) -> Iterator[Engine]:
    """A server that is ready; ended, and its last words kept, when the block ends."""
    with Processes(directory) as processes:
        engine = start(processes, weights, name=name, args=args)
        wait_ready(engine)
        yield engine


def wait_ready(engine: Engine, within: float = 20.0) -> None:
    """Until /health says 200; at once an AssertionError where the process has ended."""

    def ready() -> bool:
        engine.process.must_run()
        return engine.healthy()

    wait_for(ready, f"{engine.name} is ready on port {engine.port}", within=within)


def chat(port: int, model: str, prompt: str = "hello", **fields: Any) -> str:
    """The content of one plain chat completion, asked of the engine itself."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], **fields}
    status, answer = ask(port, "POST", "/v1/chat/completions", body)
    assert status == 200, f"{model} answered {status}: {answer!r}"
    return str(answer["choices"][0]["message"]["content"])


def ask(port: int, method: str, path: str, body: object = None, timeout: float = 10.0) -> tuple[int, Any]:
    """One request to a loopback port. Status, and the answer: parsed where it is JSON, else text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        text = response.read().decode()
        kind = response.headers.get_content_type()
        return response.status, json.loads(text) if kind == "application/json" else text
    finally:
        connection.close()
