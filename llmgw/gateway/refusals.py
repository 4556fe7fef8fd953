"""What a client is told when no engine's answer can be had: the status, and a sentence to act on.

Called by `gateway.exchange` when `routing.retry` has nowhere left to go.
"""

from llmgw.gateway.answers import Refusal
from llmgw.routing.retry import Nothing


def of(
    nothing: Nothing, model: str, wait: float, *, last: str, harmed: bool, sleeps: bool = False
) -> Refusal:
    """The refusal of a request for `model`, which clients know by this name.

    `wait` in seconds is when it may be worth another try; `last` says what became of the last
    attempt; `harmed` = an engine had begun with it: it may not be asked again for nothing; `sleeps` = the
    model had no replica for want of requests, and gets one now.
    """
    match nothing.why:
        case "none_ready":
            why = (
                "it was not asked for lately and is being started" if sleeps else "no replica of it is ready"
            )
            said = f"cannot serve {model!r} now: {why} (try again in {wait:.0f} s)"
            return Refusal(503, said, "model_not_ready", wait)
        case "late":
            said = f"cannot answer for {model!r} in time: no engine began to answer"
            return Refusal(504, said, "upstream_timeout")
        case "poison":
            said = f"cannot answer for {model!r}: engines failed while they worked on this request ({last})"
            return Refusal(502, said, "upstream_failed")
        case "all_tried" | "budget":
            said = f"cannot answer for {model!r}: the last replica tried gave no answer ({last})"
            if harmed:
                return Refusal(502, said, "upstream_failed")
            return Refusal(503, said, "upstream_unreachable", wait)
