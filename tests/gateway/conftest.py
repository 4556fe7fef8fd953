"""Every story of the gateway is told twice: on asyncio's own loop and on the one that it runs on."""

import asyncio

import pytest
import uvloop

from tests.gateway import world

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop of `story`."""
    monkeypatch.setattr(world, "loop_factory", LOOPS[request.param])
