"""What llmgw knows of every engine, as one contract; one module an engine fulfils it.

Called by `agent.supervisor` (command lines), `agent.health` (what to watch, the load) and
`agent.process` (what an exit means). Builds command lines, runs none.
"""

import dataclasses
import math
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol

from llmgw.catalog.model import Profile
from llmgw.fleet.causes import ran_out_of_memory
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.text import safe

Env = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CommandLine:
    """What is executed: argv with its program first, and the environment that the engine itself needs."""

    argv: tuple[str, ...]
    env: Env = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Canary:
    """The request that shows that rank 0 can do its work: `asks` beside the model's name, posted to `path`.

    A 200 with a list that is not empty under `holds` shows it; `name` is for people.
    """

    name: str
    path: str
    asks: tuple[tuple[str, str | int], ...]
    holds: str


COMPLETION = Canary("completion", "/v1/completions", (("prompt", "Hi"), ("max_tokens", 1)), "choices")
EMBEDDING = Canary("embedding", "/v1/embeddings", (("input", "Hi"),), "data")


@dataclasses.dataclass(frozen=True, slots=True)
class Watch:
    """How one rank is seen to come up and to live.

    `started`: "alive" = it was executed, "listening" = a socket of its tree listens on `port`.
    `ready`: "answers" = HTTP on the shard's port, then a real completion; "joined" = its tree has an
    established connection from or to `port`. `canary` is that completion, or what this engine does
    instead. In seconds: `timeout` is of one probe, `every` from one to
    the next once it is ready.
    """

    started: Literal["alive", "listening"]
    ready: Literal["answers", "joined"]
    port: int
    path: str = "/health"
    timeout: float = 5.0
    every: float = 2.0
    canary: Canary = COMPLETION


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """An engine's own counters: requests it works on, and requests that wait for it."""

    running: int
    waiting: int

    @property
    def idle(self) -> bool:
        return self.running == 0 and self.waiting == 0


class Adapter(Protocol):
    """One engine. `weights` is what its command line wants: one GGUF file, or the whole directory."""

    @property
    def name(self) -> str:
        """As profiles spell it."""
        ...

    @property
    def programs(self) -> tuple[str, ...]:
        """The names it is looked for on PATH, the first that is found wins."""
        ...

    @property
    def weights(self) -> Literal["gguf", "directory"]:
        """What `command` wants as its weights."""
        ...

    def command(self, spec: ShardSpec, weights: str, engine: str) -> CommandLine:
        """The command line of `spec`'s rank. `engine` is the program that was found on the node.

        Raises Failed where the engine cannot be run like this at all.
        """
        ...

    def version(self, engine: str) -> tuple[str, ...]:
        """The command line that tells the version of the program `engine`. It may take seconds: run on purpose only."""
        ...

    def watch(self, spec: ShardSpec) -> Watch:
        """How this rank is watched."""
        ...

    def terminates(self, rank: int) -> bool:
        """Whether TERM to this rank's leader ends it; else it is only waited for, then killed."""
        ...

    def load(self, metrics: str) -> Load | None:
        """The load out of the text of `/metrics`; None where it is not in there."""
        ...

    def progress(self, metrics: str) -> float | None:
        """A number that changes whenever the engine gets on with a request; None where it tells none."""
        ...

    def explain(self, code: int | None, log_tail: str) -> str:
        """Why a process ended, for people: its exit and its last real error line. None = status unknown."""
        ...


def host_port(address: str, port: int) -> str:
    """`address:port`, with brackets where the address needs them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def rendezvous(spec: ShardSpec) -> int:
    """The port where the ranks of a replica meet: the one after rank 0's HTTP port."""
    return spec.peers[0].port + 1


def flags(profile: Profile, *, without: Iterable[str] = ()) -> tuple[str, ...]:
    """The profile's own engine arguments as flags: `true` → `--x`, `false` → `--no-x`, lists spread."""
    skipped = set(without)
    found: list[str] = []
    for key, value in profile.args:
        flag = _flag(key)
        if flag in skipped:
            continue
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple):
            found += [f"--{flag}", *value]
        else:
            found += [f"--{flag}", str(value)]
    return tuple(found)


def _flag(key: str) -> str:
    return key.lstrip("-").replace("_", "-")


def metric_sums(text: str, prefix: str) -> Mapping[str, float]:
    """Prometheus text as name → sum over its label sets, of names that begin with `prefix`.

    Left out: what does not parse, or is no finite number. Other lines cost no more than being passed over.
    """
    sums: dict[str, float] = {}
    for line in _lines(text, prefix):
        match = _SAMPLE.match(line)
        if match and math.isfinite(summed := sums.get(match["name"], 0.0) + float(match["value"])):
            sums[match["name"]] = summed
    return sums


def _lines(text: str, prefix: str) -> Iterator[str]:
    text, begin = f"\n{text}", -1
    while (begin := text.find(f"\n{prefix}", begin + 1)) >= 0:
        end = text.find("\n", begin + 1)
        yield text[begin + 1 : end if end >= 0 else None]


def load_of(text: str, running: str, waiting: str) -> Load | None:
    """The load that two gauges tell; None unless both are there."""
    found = [metric_sums(text, name).get(name) for name in (running, waiting)]
    counts = [round(value) for value in found if value is not None]
    return Load(*counts) if len(counts) == len(found) else None


def progress_of(text: str, prefix: str) -> float | None:
    """The sum of all counters whose name begins with `prefix`."""
    counters = [
        value
        for name, value in metric_sums(text, prefix).items()
        if name.endswith(("_total", "_count", "_sum"))
    ]
    return sum(counters) if counters else None


def how_it_ended(code: int | None) -> str:
    """`exit 1`, `killed by SIGKILL`, or that nobody knows: negative codes are signals."""
    if code is None:
        return "ended, exit status unknown (another agent had started it)"
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def last_error(log_tail: str) -> str:
    """The last line that reads like an error, one of memory before others; or nothing. Safe to show, at most 300 characters."""
    lines = (safe(raw).strip() for raw in log_tail.splitlines())
    errors = [line for line in lines if _ERROR.search(line) and not _NOISE.search(line)]
    # Engines end with a line that only points at it; where memory ran out, that is the news.
    memory = [line for line in errors if ran_out_of_memory(line)]
    return (memory or errors)[-1][:300] if errors else ""


def explained(ended: str, log_tail: str) -> str:
    """How it ended, and what its log said last."""
    said = last_error(log_tail)
    return f"{ended}: {said}" if said else ended


_SAMPLE = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?:\s|\Z)",
    re.ASCII,
)
_ERROR = re.compile(
    r"error|exception|fail|fatal|abort|assert|cannot|can't|couldn't|unable|refused|crash|denied"
    r"|out of memory|no such|not found|unrecognized|invalid|exceed|mismatch|killed",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^During handling of|^Traceback|deprecat|\bwarning\b", re.IGNORECASE)
