"""A story told with a real fleet: what its steps look at, and the order in which they are played.

Called by `tests.lab.tour`. A step does one thing and proves from outside that it took effect; the
first one that fails ends the story, and shows what every process said last.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import openai

from llmgw.kit.clock import SystemClock
from tests.support.clients import Steady, client, streamed
from tests.support.processes import Process
from tests.support.stage import Stage


class Story:
    """The stage, its processes by name, and what each step has proven."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.running: dict[str, Process] = {}
        self.took_effect: dict[str, Any] = {}
        self.figures: dict[str, float] = {}
        self.clock = SystemClock()

    def ready(self, model: str) -> list[dict[str, Any]]:
        """The Ready replicas of a model, as `llmgw replicas` tells."""
        rows = self.stage.json("replicas")["items"]
        return [row for row in rows if row["model"] == model and row["state"] == "Ready"]

    def pids(self, model: str = "") -> dict[int, int]:
        """The engines of a model: pid → start ticks, from /proc."""
        return {seen.pid: seen.ticks for seen in self.stage.engines(model)}

    def apply(self, message: str, *options: str, within: float = 60.0) -> float:
        """Commit the catalog and apply it. Returns the seconds until it was done."""
        self.stage.commit(message)
        began = self.clock.now()
        done = self.stage.cli("apply", "catalog", "--yes", *options, within=within)
        must(done.returncode == 0, f"apply ended with {done.returncode}: {done.stdout}{done.stderr}")
        return self.clock.now() - began

    def clients(self, model: str) -> Steady:
        """Clients that ask for `model` until the block ends."""
        return Steady(self.stage.gateway_port, model)

    def adopted_on(self, node: str) -> int:
        """How many shards of a node run adopted, once all of its Ready ones do."""
        shards = [
            shard
            for row in self.stage.json("replicas")["items"]
            for shard in row["shards"]
            if shard["node"] == node
        ]
        return len(shards) if all(shard["adopted"] and shard["state"] == "ready" for shard in shards) else 0

    def known(self) -> set[str]:
        """The ids of the Ready replicas; empty while no control plane answers."""
        ran = self.stage.cli("replicas")
        lines = [line.split() for line in ran.stdout.splitlines()]
        return {words[0] for words in lines if len(words) > 1 and words[1] == "Ready"}

    def settled(self) -> bool:
        """Whether every node is Ready and nothing is outstanding."""
        status = self.stage.json("status")
        return not status["outstanding"] and set(status["nodes"].values()) == {"Ready"}


def must(held: object, said: str) -> None:
    """AssertionError with `said` unless it held."""
    assert held, said


class LongStream(threading.Thread):
    """One streamed answer of `length` tokens. `words` counts what has come; `error` says how it ended badly."""

    def __init__(self, port: int, model: str, length: int) -> None:
        super().__init__(name="long stream")
        self.length = length
        self.words = 0
        self.error = ""
        self._port, self._model = port, model

    def run(self) -> None:
        """Read to the end."""
        with client(self._port) as asked:
            try:
                streamed(asked, self._model, max_tokens=self.length, end="length", each=self._word)
            except (openai.OpenAIError, ValueError) as error:
                self.error = f"{type(error).__name__}: {error}"

    def _word(self, _: str) -> None:
        self.words += 1


Step = Callable[[Story], None]


def play(story: Story, steps: Sequence[Step], last: str) -> str:
    """The steps up to `last`, each said when it holds. Returns what failed, or nothing."""
    for step in steps:
        began = story.clock.now()
        try:
            step(story)
        except (AssertionError, openai.OpenAIError) as error:
            print(f"FAIL {step.__name__}: {error}\n{story.stage.processes.last_words()}", file=sys.stderr)
            return step.__name__
        print(f"ok   {step.__name__}  {story.clock.now() - began:.1f} s", file=sys.stderr)
        if step.__name__ == last:
            break
    return ""
