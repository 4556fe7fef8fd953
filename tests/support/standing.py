"""A control plane that runs a catalog, and proof that nothing about it changes. For labs that attack it.

One agent, one engine with a scripted model, one revision. `Standing.proof` is what an attack may not
change: the revision, the rows of every screen that are not clocks, and the engines by pid.
"""

import contextlib
import pathlib
from types import TracebackType
from typing import Any

import httpx
import psutil

from tests.support.stage import Stage
from tests.support.story import Story, must
from tests.support.waiting import wait_for

TIMERS = {"min_ready": "200ms", "place_grace": "1s"}


class Standing(contextlib.AbstractContextManager["Standing"]):
    """The running fleet; entered once the catalog is served."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.stage = Stage(directory, {"alpha": "I am alpha."}, timers=TIMERS)
        self.catalog = self.stage.repository / "catalog"

    def __enter__(self) -> "Standing":
        stage = self.stage.__enter__()
        try:
            self._begin(stage)
        except BaseException:
            self.stage.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        self.stage.__exit__(kind, error, trace)

    def _begin(self, stage: Stage) -> None:
        stage.server.gate.set()
        self.control = stage.control()
        stage.agent("node")
        self.http = httpx.Client(base_url=f"http://{stage.server_address}", trust_env=False, timeout=30)
        wait_for(self._node_is_ready, "the node registers", within=20.0)
        stage.profile()
        stage.model("alpha")
        Story(stage).apply("one model", within=60.0)
        self.process = psutil.Process(self.control.pid)
        must(
            self.proof()["models"] == {"alpha": {"ready": 1, "wanted": 1, "silent": 0}},
            "the catalog is served",
        )

    def _node_is_ready(self) -> bool:
        self.control.must_run()
        try:
            return "Ready" in self.get("status")["nodes"].values()
        except httpx.TransportError:
            return False

    def get(self, what: str) -> Any:
        """One answer of the control plane."""
        return self.http.get(f"/v1/{what}").raise_for_status().json()

    def post(self, what: str, files: dict[str, str], **more: str) -> httpx.Response:
        """Ask it to plan or apply these files, as `llmgw plan` and `apply` do."""
        return self.http.post(f"/v1/{what}", json={"files": files, "commit": "", "who": "lab", **more})

    def files(self) -> dict[str, str]:
        """The catalog that stands, as `llmgw apply` uploads it."""
        return {f"catalog/{path.name}": path.read_text() for path in sorted(self.catalog.glob("*.yaml"))}

    def cpu(self) -> float:
        """CPU seconds that the control plane has taken."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def mib(self) -> float:
        """The most memory that the control plane has had, in MiB."""
        lines = pathlib.Path(f"/proc/{self.control.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

    def proof(self) -> dict[str, Any]:
        """What stands, without what only tells the time."""
        status = self.get("status")
        kept = ("revision", "epoch", "adopted", "nodes", "models", "outstanding", "unplaced", "alarms")
        engines = sorted((seen.pid, seen.ticks) for seen in self.stage.engines())
        replicas = [(row["replica"], row["state"], row["nodes"]) for row in self.get("replicas")]
        return {**{name: status[name] for name in kept}, "engines": engines, "replicas": replicas}
