"""Wire messages to fleet events, actions to commands. Pure; used by the process and by the simulation."""

from collections.abc import Callable

from llmgw.fleet import events
from llmgw.fleet.world import Fleet
from llmgw.planning.actions import Action, Assign, Drain, Start, Stop, Undrain
from llmgw.wire import messages


def agent_event(node: str, message: messages.Up) -> events.Event | None:
    """What an agent's message means for the fleet; None for what is no news of it (a Result)."""
    match message:
        case messages.Register():
            return events.Registered(message.info, message.shards, message.failures, message.progress)
        case messages.Report():
            return events.Reported(node, message.statuses, message.info)
        case messages.Heartbeat():
            return events.Heartbeat(node, message.idle)
        case messages.ProgressReport():
            return events.Progressed(node, message.progress)
        case _:
            return None


def own_words(node: str, message: messages.Up, fleet: Fleet) -> messages.Up:
    """`message` without what a heartbeat says of shards on other nodes: a word of idleness ends a drain."""
    if not isinstance(message, messages.Heartbeat) or not message.idle:
        return message
    mine = tuple(
        (key, idle)
        for key, idle in message.idle
        if key in fleet.shards and fleet.shards[key].spec.node == node
    )
    return message if mine == message.idle else message.model_copy(update={"idle": mine})


def claimed_twice(register: messages.Register, fleet: Fleet) -> str:
    """Why a registration cannot be believed: it claims a shard of another node that is connected. Or nothing."""
    info = register.info
    for spec, _ in register.shards:
        known = fleet.shards.get(spec.key)
        holder = fleet.nodes.get(known.spec.node) if known is not None else None
        if holder is not None and holder.connected and holder.info.id != info.id:
            return (
                f"node {info.name} ({info.id}) is refused: it claims rank {spec.rank} of {spec.replica}, "
                f"which is on {holder.info.name} ({holder.info.id}); stop the agent that should not have it"
            )
    return ""


def not_known(node: str, message: messages.Up, fleet: Fleet) -> str:
    """Why a node has to say everything again: it reports a shard that nobody knows here, and which holds
    its cards unseen until it is adopted or stopped. Or nothing.
    """
    if not isinstance(message, messages.Report) or node not in fleet.nodes:
        return ""
    strange = [s for s in message.statuses if s.state != "gone" and s.key not in fleet.shards]
    if not strange:
        return ""
    return (
        f"it reports rank {strange[0].rank} of {strange[0].replica}, which is not known here: say all again"
    )


def gateway_event(gateway: str, message: messages.Up, host: str = "") -> events.Event | None:
    """What a gateway's message means for the fleet. `host` is this control plane's machine, as gateways say theirs."""
    match message:
        case messages.Subscribe():
            return events.GatewayArrived(gateway, apart=bool(host and message.host) and message.host != host)
        case messages.Load():
            return events.GatewaySeen(
                gateway, message.acked, message.in_flight, message.green, message.queued, message.dark
            )
        case messages.Leave():
            return events.GatewayForgotten(gateway)
        case _:
            return None


def order(action: Action) -> tuple[str, Callable[[int, int], messages.Command]] | None:
    """The node an action is for, and its command once epoch and sequence are known.

    None for drains: they take effect through the routing table.
    """
    match action:
        case Assign(spec=spec):
            return spec.node, lambda epoch, seq: messages.Assign(epoch=epoch, seq=seq, spec=spec)
        case Start(key=(replica, rank), node=node, generation=generation):
            return node, lambda epoch, seq: messages.Start(
                epoch=epoch, seq=seq, replica=replica, rank=rank, generation=generation
            )
        case Stop(key=(replica, rank), node=node, generation=generation, grace=grace, because=because):
            return node, lambda epoch, seq: messages.Stop(
                epoch=epoch,
                seq=seq,
                replica=replica,
                rank=rank,
                generation=generation,
                grace=grace,
                because=because,
            )
        case Drain() | Undrain():
            return None
