"""Clients that never stop asking: what an operation did to them is counted, request by request.

Used where a claim is "no request failed meanwhile": `Steady` runs while the world is changed and
keeps every failure with its words. A run proves itself by how many requests it made.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable
from types import TracebackType

import openai

ASK = [{"role": "user", "content": "who are you?"}]


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A request that did not end well: the how many-th, how it was asked, what was said."""

    number: int
    streaming: bool
    said: str


def client(port: int, timeout: float = 20.0, host: str = "127.0.0.1") -> openai.OpenAI:
    """The openai client, which tries once and tells."""
    return openai.OpenAI(
        base_url=f"http://{host}:{port}/v1", api_key="unused", max_retries=0, timeout=timeout
    )


def plain(asked: openai.OpenAI, model: str) -> str:
    """The content of one chat completion."""
    answer = asked.chat.completions.create(model=model, messages=ASK)  # type: ignore[arg-type]
    return answer.choices[0].message.content or ""


def streamed(
    asked: openai.OpenAI,
    model: str,
    *,
    max_tokens: int | None = None,
    end: str = "stop",
    each: Callable[[str], object] | None = None,
) -> str:
    """The content of one streamed chat completion, which must end with `end`; `each` gets every piece."""
    pieces, ended = [], None
    with asked.chat.completions.create(  # type: ignore[call-overload]
        model=model, messages=ASK, stream=True, max_tokens=max_tokens
    ) as chunks:
        for choice in (choice for chunk in chunks for choice in chunk.choices):
            ended = choice.finish_reason or ended
            if choice.delta.content:
                pieces.append(choice.delta.content)
                if each is not None:
                    each(choice.delta.content)
    if ended != end:
        raise ValueError(f"the stream ended with {ended!r} after {len(pieces)} pieces")
    return "".join(pieces)


class Steady:
    """Asks for `model` over and over, plain and streamed in turn, until the block ends.

    `pace` is the seconds between two requests of one client. `answers` counts the contents,
    `failures` keeps what went wrong.
    """

    def __init__(
        self, port: int, model: str, *, clients: int = 2, pace: float = 0.01, host: str = "127.0.0.1"
    ) -> None:
        self.answers: dict[str, int] = {}
        self.failures: list[Failure] = []
        self._model = model
        self._pace = pace
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._ask, args=(client(port, host=host),)) for _ in range(clients)
        ]

    @property
    def done(self) -> int:
        """Requests that were answered."""
        return sum(self.answers.values())

    def __enter__(self) -> "Steady":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, asked: openai.OpenAI) -> None:
        with asked:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                self._one(asked, number, streaming=number % 2 == 1)
                self._stop.wait(self._pace)

    def _one(self, asked: openai.OpenAI, number: int, *, streaming: bool) -> None:
        try:
            content = (streamed if streaming else plain)(asked, self._model)
        except (openai.OpenAIError, ValueError) as error:
            with self._lock:
                self.failures.append(Failure(number, streaming, f"{type(error).__name__}: {error}"))
            return
        with self._lock:
            self.answers[content] = self.answers.get(content, 0) + 1
