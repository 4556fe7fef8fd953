"""Which of the endpoints that may serve a request gets it.

Called by `routing.retry`. Least in-flight of two random choices: as even as knowing everything,
without herding on the one that looked idle when several gateways looked at it.
"""

from collections.abc import Mapping, Sequence

from llmgw.fleet.routes import Endpoint
from llmgw.kit.chance import Chance


def choose(endpoints: Sequence[Endpoint], in_flight: Mapping[str, int], chance: Chance) -> Endpoint:
    """One of `endpoints` (at least one). `in_flight` is by replica, absent = 0."""
    count = len(endpoints)
    if count == 1:
        return endpoints[0]
    first = int(chance.random() * count)
    second = (first + 1 + int(chance.random() * (count - 1))) % count
    one, other = endpoints[first], endpoints[second]
    return other if in_flight.get(other.replica, 0) < in_flight.get(one.replica, 0) else one
