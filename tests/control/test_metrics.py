"""What Prometheus sees of the control plane and of an agent: the figures of the screens, with bounded labels."""

import asyncio
import collections
import dataclasses
import logging
import pathlib
import re

import httpx
import pytest

from llmgw.agent import core
from llmgw.agent import metrics as agent_metrics
from llmgw.control import metrics as control_metrics
from llmgw.fleet import events
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.shard import Progress, ShardStatus
from llmgw.kit.exposition import Family, page
from llmgw.transport.scrape import listen
from tests.agent.making import assign, spec
from tests.control.plane import Plane, files

NODE = NodeInfo("n0", "gpu-1", engines=(InstalledEngine("llamacpp"),), disk_free=1 << 40)
SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)\Z")


def samples(text: bytes) -> dict[str, float]:
    """Every sample by name and labels; each name is announced once, before its samples."""
    lines = text.decode().splitlines()
    announced = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert not [name for name, count in collections.Counter(announced).items() if count > 1]
    found = [match for line in lines if not line.startswith("#") and (match := SAMPLE.match(line))]
    assert {match["name"] for match in found} <= set(announced)
    return {f"{match['name']}{{{match['labels'] or ''}}}": float(match["value"]) for match in found}


def test_the_page_of_the_control_plane_says_what_the_screens_say(tmp_path: pathlib.Path) -> None:
    """Nodes by state, ready against wanted, orders by kind; what left the catalog has no label of its own."""
    plane = Plane(tmp_path)
    plane.hears(events.Registered(NODE))
    plane.call("POST", "/v1/apply", {"files": files("qwen")})
    plane.loop.decide()
    (key,) = plane.loop.fleet.shards
    plane.hears(events.Reported("n0", (ShardStatus(*key, "ready"),)))
    found = samples(control_metrics.metrics(plane.loop, 7, 1, {"agent": 1}))
    assert found['llmgw_control_nodes{state="Ready"}'] == 1
    assert found['llmgw_control_ready{model="qwen"}'] == found['llmgw_control_wanted{model="qwen"}'] == 1
    assert found['llmgw_control_replicas{model="qwen",phase="Ready"}'] == 1
    assert found['llmgw_control_orders_total{action="assign"}'] == 1
    assert (found["llmgw_control_epoch{}"], found['llmgw_control_peers{kind="agent"}']) == (7, 1)

    plane.call("POST", "/v1/apply", {"files": files("next")})
    found = samples(control_metrics.metrics(plane.loop, 7, 2, {}))
    assert found['llmgw_control_replicas{model="other",phase="Ready"}'] == 1
    assert not [name for name in found if "qwen" in name]


@pytest.mark.parametrize(
    ("why", "held"), [("", 0), ("invalid", 1), ("guard", 1), ("blind", 1), ("pending", 0), ("left", 0)]
)
def test_a_catalog_that_is_held_is_a_figure(tmp_path: pathlib.Path, why: str, held: int) -> None:
    """Whether it is, and for how long by why; what waits for people as they wanted is no alarm."""
    waits = {"why": why, "age": 240.0}
    followed = {
        "hold": waits if why not in ("", "blind") else None,
        "blind": waits if why == "blind" else None,
    }
    found = samples(control_metrics.metrics(Plane(tmp_path).loop, 7, 1, {}, followed))
    assert found["llmgw_control_catalog_held{}"] == held
    ages = {name: value for name, value in found.items() if "held_seconds" in name}
    assert ages == ({f'llmgw_control_catalog_held_seconds{{why="{why}"}}': 240.0} if why else {})


def test_the_page_of_an_agent_says_what_its_node_is_and_does() -> None:
    """Shards by model and state, bytes of fetches by model; what the node does not know is left out."""
    state = core.AgentState("n")
    shard = spec("alpha/x7qf", nodes=("n",))
    state, _ = core.step(state, core.Commanded(assign(shard)), 0.0)
    state, _ = core.step(state, core.Fetching(shard.cache_name), 1.0)
    cards = (Gpu("u", "H100", 80 << 30, 1 << 30), Gpu("v", "H100", healthy=False))
    info = dataclasses.replace(NODE, gpus=cards)
    progress = (Progress(shard.cache_name, 4096), Progress("stranger", 1))
    found = samples(agent_metrics.metrics(state, info, progress, registered=True, epoch=7))
    assert found['llmgw_agent_shards{model="alpha",state="fetching"}'] == 1
    assert found['llmgw_agent_fetched_bytes{model="alpha"}'] == 4096
    assert (found["llmgw_agent_cards{}"], found["llmgw_agent_bad_cards{}"]) == (2, 1)
    assert found["llmgw_agent_disk_free_bytes{}"] == 1 << 40
    assert "llmgw_agent_memory_free_bytes{}" not in found


def test_numbers_keep_every_digit_and_text_its_quotes() -> None:
    """A table's version is longer than a float shows; a quote, a backslash and a new line stay inside a label."""
    whole = Family("v", "gauge", "V.", {(): 29723104182599683})
    odd = Family("o", "counter", "O.", {('a"\\\n',): 0.25}, ("model",))
    assert page("x_", (whole, odd)) == (
        b"# HELP x_v V.\n# TYPE x_v gauge\nx_v 29723104182599683\n"
        b'# HELP x_o O.\n# TYPE x_o counter\nx_o{model="a\\"\\\\\\n"} 0.25\n'
    )


def test_a_taken_port_costs_the_figures_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Two agents of one machine: the second goes on without, and says so."""

    async def story() -> None:
        first = await listen(lambda: b"figures", ("127.0.0.1", 0))
        assert first is not None
        port = int(first.sockets[0].getsockname()[1])
        with caplog.at_level(logging.WARNING):
            assert await listen(lambda: b"", ("127.0.0.1", port)) is None
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/metrics")).text == "figures"
        first.close()
        assert await listen(lambda: b"", None) is None

    asyncio.run(story())
    assert "no metrics: cannot listen on 127.0.0.1:" in caplog.text
