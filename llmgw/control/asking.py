"""A command that is answered: sends it to a peer and waits for the Result of its sequence number.

Built by `serve`, one for nodes and one for gateways, which passes every Result on; `collecting`, `logs`,
`checking` and `clocks` ask.
"""

import asyncio
from collections.abc import Callable

from llmgw.wire import messages

Make = Callable[[int, int], messages.Command]


class NoAnswer(Exception):
    """Nobody answered; `said` is why, in a few words."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class Asking:
    """What was asked and not answered yet, by node and sequence. Each entry has its waiter and goes with it."""

    def __init__(self, send: Callable[[str, Make], bool]) -> None:
        self._send = send
        self._open: dict[tuple[str, int], asyncio.Future[messages.Result]] = {}

    async def ask(self, node: str, make: Make, patience: float) -> messages.Result:
        """The node's answer. Raises NoAnswer where it is away, leaves, or takes longer than `patience` seconds."""
        answer: asyncio.Future[messages.Result] = asyncio.get_running_loop().create_future()
        numbers: list[int] = []

        def numbered(epoch: int, seq: int) -> messages.Command:
            numbers.append(seq)
            return make(epoch, seq)

        if not self._send(node, numbered):
            raise NoAnswer("not connected: nothing was asked")
        key = (node, numbers[0])
        self._open[key] = answer
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            raise NoAnswer(f"no answer within {patience:g}s") from None
        finally:
            del self._open[key]

    def answered(self, node: str, result: messages.Result) -> None:
        """A node answered one of its commands."""
        waiting = self._open.get((node, result.seq))
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def left(self, node: str) -> None:
        """The node's stream ended: what it was asked is not answered on another."""
        for (asked, _), waiting in self._open.items():
            if asked == node and not waiting.done():
                waiting.set_exception(NoAnswer("its agent went away"))
