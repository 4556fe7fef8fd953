"""A gateway's word of requests for a model that sleeps is news; its word of load as usual is none."""

import asyncio
import pathlib

from llmgw.catalog.model import Scaling
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import InstalledEngine, NodeInfo
from llmgw.planning.actions import Assign
from llmgw.planning.desired import Desired
from tests.control.plane import Plane, Ticking
from tests.planning.story import a_catalog, a_model, a_profile

NODE = NodeInfo("n0", "n0", engines=(InstalledEngine("llamacpp"),))


def test_a_sleeping_model_is_woken_at_once(tmp_path: pathlib.Path) -> None:
    """Not when the loads are looked at next: here that is an hour away."""

    async def story() -> None:
        plane = Plane(tmp_path, clock=Ticking(), timers=Timers(scale_every=3600.0))
        plane.hears(events.Registered(NODE))
        model = a_model("a", scaling=Scaling(0, 1))
        plane.loop.adopt(Desired(a_catalog(model, profiles=[a_profile(gpus_per_node=0)])))
        running = asyncio.ensure_future(plane.loop.run())
        await asyncio.sleep(0.05)
        plane.hears(events.GatewaySeen("gw", 0, queued=(("a", 0), ("b", 1))))
        await asyncio.sleep(0.05)
        assert plane.sent == []
        plane.hears(events.GatewaySeen("gw", 0, queued=(("a", 1),)))
        await asyncio.sleep(0.05)
        assert [type(action) for action in plane.sent] == [Assign]
        running.cancel()

    asyncio.run(story())
