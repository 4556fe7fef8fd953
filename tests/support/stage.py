"""A fleet on this machine for stories: a catalog in git, weights over HTTP, and llmgw's own processes.

Called by the lab and by end-to-end tests, which say what happens; this says how it is done. Every
model is scripted, so an answer tells who gave it. Everything listens on loopback and ends with it.
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Self
from unittest import mock

from demo import weights
from llmgw.catalog import sources
from llmgw.cli.main import run as llmgw
from tests.support import proc, scripted_model
from tests.support.engines import SCRIPTS
from tests.support.ports import free_block, free_port
from tests.support.processes import Process, Processes, end_by_pid, run_llmgw

PROFILE = """\
kind: profile
name: small
engine: llamacpp
gpus_per_node: 0
cpu: {{cores: 0.1, memory: 64MiB}}
max_model_len: {length}
args: {{threads: 1, parallel: 4}}
start_deadline: 30s
drain: 10s
"""
AGENT_PORTS = 200
HEARTBEAT = "200ms"


class Gated(weights.Server):
    """Sends half of a whole file, then waits until `gate` is open: a fetch that can be looked at under way."""

    def __init__(self, files: Mapping[str, pathlib.Path]) -> None:
        super().__init__(files)
        self.RequestHandlerClass = GatedHandler
        self.gate = threading.Event()


class GatedHandler(weights.Handler):
    """The handler of `Gated`."""

    server: Gated

    def send(self, name: str, file: BinaryIO, span: range) -> None:
        """Half, the gate, the other half; a piece that somebody looks into passes."""
        if len(span) < self.server.files[name].stat().st_size:
            super().send(name, file, span)
            return
        middle = span.start + len(span) // 2
        super().send(name, file, range(span.start, middle))
        self.wfile.flush()
        self.server.gate.wait()
        super().send(name, file, range(middle, span.stop))


class Stage(contextlib.AbstractContextManager["Stage"]):
    """The fleet. `sentences` is what each model says, by its name; those in `loops` never end.

    `timers` are the control plane's.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        sentences: Mapping[str, str],
        *,
        loops: Collection[str] = (),
        timers: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.repository = directory / "fleet"
        self.sentences = dict(sentences)
        self.timers = dict(timers or {})
        written = {
            f"{name}.gguf": scripted_model.write(directory / f"{name}.gguf", said, loop=name in loops)
            for name, said in sentences.items()
        }
        self.server = Gated(written)
        self.control_port, self.gateway_port, self.metrics_port = free_port(), free_port(), free_port()
        self.processes = Processes(directory, self._env())
        self._ports: dict[str, range] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self._end_engines)
        self._stack.enter_context(self.processes)
        self._stack.enter_context(weights.serving(self.server))
        self._stack.callback(self.server.gate.set)
        (self.repository / "catalog").mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main", ".")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    # --- the catalog ---------------------------------------------------------------------------

    def git(self, *args: str) -> None:
        """Run git in the catalog's repository."""
        who = ("-c", "user.name=tour", "-c", "user.email=tour@localhost")
        subprocess.run(["git", *who, *args], cwd=self.repository, check=True, env=self._env())

    def profile(self, length: int = 4096) -> None:
        """Write the one profile. Another `length` is another engine argument: it needs a restart."""
        (self.repository / "catalog" / "small.yaml").write_text(PROFILE.format(length=length))

    def model(self, name: str, **fields: Any) -> None:
        """Write a model document; `fields` as they stand in YAML."""
        (self.repository / "catalog" / f"{name}.yaml").write_text(self.document(name, **fields))

    def document(self, name: str, **fields: Any) -> str:
        """A model document. JSON is YAML."""
        document = {
            "kind": "model",
            "name": name,
            "source": self.source(name),
            "sha256": scripted_model.sha256(self.files[f"{name}.gguf"]),
            "profiles": ["small"],
            **fields,
        }
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())

    def source(self, model: str) -> str:
        """Where the weights of a model are fetched from."""
        return self.server.url(f"{model}.gguf")

    @property
    def files(self) -> dict[str, pathlib.Path]:
        """What the weights server serves, by name."""
        return self.server.files

    def remove(self, name: str) -> None:
        """Remove a document."""
        (self.repository / "catalog" / f"{name}.yaml").unlink()

    def commit(self, message: str) -> None:
        """Commit the catalog as it stands."""
        self.git("add", "--all", "catalog")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)

    # --- the processes -------------------------------------------------------------------------

    def control(self, *more: str, wrapper: Sequence[str] = ()) -> Process:
        """Start the control plane, with these options too, by way of `wrapper` where one is given."""
        timers = [word for name, value in self.timers.items() for word in ("--timer", f"{name}={value}")]
        options = ("--listen", self.server_address, "--heartbeat", HEARTBEAT)
        words = (*options, *self._state("control"), *timers, *more)
        return self.processes.llmgw("control", "serve", *words, wrapper=wrapper)

    def agent(self, name: str) -> Process:
        """Start an agent; started again under the same name, it is the same node."""
        return self.processes.llmgw(name, "agent", *self.node_options(name))

    def node_options(self, name: str) -> tuple[str, ...]:
        """What the agent of this name is started with: its control plane, its own ports and state."""
        ports = self._ports.setdefault(name, free_block(AGENT_PORTS))
        options = ("--name", name, "--ports", f"{ports.start}-{ports.stop - 1}")
        return ("--control", self.server_address, *options, *self._state(name))

    def gateway(self, *, wrapper: Sequence[str] = ()) -> Process:
        """Start the gateway, by way of `wrapper` where one is given."""
        options = (
            "--listen",
            f"127.0.0.1:{self.gateway_port}",
            "--metrics",
            f"127.0.0.1:{self.metrics_port}",
        )
        words = ("--control", self.server_address, *options, *self._state("gateway"))
        return self.processes.llmgw("gateway", "gateway", *words, wrapper=wrapper)

    def cli(self, *args: str, within: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one command against this control plane, in the repository."""
        return run_llmgw(*args, env=self._env(), cwd=self.repository, within=within)

    def inside(self, *args: str) -> subprocess.CompletedProcess[str]:
        """As `cli`, in this process: a start costs a second. One at a time, and nothing else prints meanwhile."""
        kept = io.BytesIO(), io.BytesIO()
        out, err = (io.TextIOWrapper(each, "utf-8", newline="", write_through=True) for each in kept)
        with (
            contextlib.chdir(self.repository),
            mock.patch.dict(os.environ, self._env()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = llmgw(list(args))
        said, told = (each.getvalue().decode() for each in kept)
        return subprocess.CompletedProcess(args, code, said, told)

    def json(self, *args: str) -> Any:
        """What a command answers with `-o json`; it must succeed."""
        ran = self.cli(*args, "-o", "json")
        assert ran.returncode == 0, f"llmgw {' '.join(args)} ended with {ran.returncode}:\n{ran.stderr}"
        return json.loads(ran.stdout)

    @property
    def server_address(self) -> str:
        """HOST:PORT of the control plane."""
        return f"127.0.0.1:{self.control_port}"

    def cached(self, model: str) -> list[pathlib.Path]:
        """Where agents have the weights of a model as an entry of their cache."""
        source = sources.parse(self.source(model), scripted_model.sha256(self.files[f"{model}.gguf"]))
        return sorted(self.directory.glob(f"*/**/{sources.cache_name(source)}"))

    def engines(self, model: str = "") -> list[proc.Seen]:
        """The live processes that carry llmgw's mark and belong to this stage, of one model or all."""
        here = str(self.directory)
        return [seen for seen in proc.marked(model) if here in seen.command]

    def _end_engines(self) -> None:
        """Engines outlive their agents; a story that failed leaves none behind all the same."""
        for seen in self.engines():
            end_by_pid(seen.pid)

    def _state(self, name: str) -> tuple[str, str]:
        return ("--state-dir", str(self.directory / name))

    def _env(self) -> dict[str, str]:
        path = os.pathsep.join((str(SCRIPTS), os.environ.get("PATH", os.defpath)))
        return {"PATH": path, "LLMGW_SERVER": self.server_address}
