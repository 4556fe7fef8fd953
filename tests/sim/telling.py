"""Events and actions as lines of the trace."""

from llmgw.fleet import events
from llmgw.planning import actions


def short(event: events.Event | actions.Action) -> str:
    """What happened or was ordered, in a few words."""
    match event:
        case events.Registered():
            told = " ".join(f"{s.replica}:{s.rank}={s.state}" for _, s in event.shards)
            return f"{event.info.id} registers: {told}"
        case events.Reported():
            told = " ".join(f"{s.replica}:{s.rank}={s.state}" for s in event.statuses)
            return f"{event.node} reports: {told or 'its cache'}"
        case actions.Assign(spec=spec):
            return f"assign {spec.replica}:{spec.rank} to {spec.node}: {event.because}"
        case actions.Start() | actions.Stop():
            return f"{type(event).__name__.lower()} {event.key[0]}:{event.key[1]} on {event.node}: {event.because}"
        case actions.Drain() | actions.Undrain():
            return f"{type(event).__name__.lower()} {event.replica}: {event.because}"
        case _:
            return str(event)
