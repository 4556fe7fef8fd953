"""A control plane of a newer release gets its own spec back, also from an agent that came after the one it told."""

import asyncio
import json
import pathlib
from typing import Any

from llmgw.agent import core
from llmgw.agent.supervisor import Supervisor
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardSpec
from llmgw.wire import messages as wire
from tests.agent.house import House, gone, ready, until
from tests.agent.making import assign


def test_unknown_keys_of_a_spec_outlive_the_agent(tmp_path: pathlib.Path) -> None:
    """On the wire, in its record on the disk, and from there with the next agent, when that has written it anew too."""
    house = House(tmp_path)
    shard = house.spec()
    said: dict[str, Any] = json.loads(wire.encode(assign(shard)))
    said["spec"]["priority"] = {"class": "gold"}
    said["spec"]["peers"][0]["rack"] = "a1"

    async def story() -> None:
        async with house.agent() as agent:
            command = wire.decode_down(json.dumps(said).encode())
            assert isinstance(command, wire.Assign)
            agent.tell(core.Commanded(command))
            await until(lambda: house.states(shard.key)[-1:] == ["held"], "held")
            await ready(house, agent, shard)
            assert told(agent, shard) == said["spec"]
        async with house.agent() as agent:
            assert told(agent, shard) == said["spec"]
            (file,) = (tmp_path / "shards").glob("*.json")
            body = json.loads(file.read_text())["body"]
            assert body["spec"] == said["spec"]
            await gone(agent, shard)
            assert agent.state.beyond() == {}

    try:
        asyncio.run(story())
    finally:
        house.clean()


def told(agent: Supervisor, shard: ShardSpec) -> Any:
    """The spec as the agent registers it."""
    register = wire.Register(info=NodeInfo("n", "n"), shards=agent.state.statuses(0.0))
    said = json.loads(wire.encode(register.with_beyond(agent.state.beyond())))
    ((spec, _),) = said["shards"]
    assert spec["replica"] == shard.replica
    return spec
