"""`llmgw gateway`: what its options become."""

import pathlib

import pytest

from llmgw.cli.exits import Exit
from llmgw.cli.main import run
from llmgw.gateway import serve
from tests.gateway.world import gateway, routed, story


@pytest.mark.parametrize(("option", "port"), [("off", None), ("127.0.0.1:9700", 9700)])
def test_metrics_can_be_off(
    option: str, port: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """As for the control plane and the agent: None listens nowhere."""
    seen: list[serve.Settings] = []

    async def note(given: serve.Settings, **_: object) -> None:
        seen.append(given)

    monkeypatch.setattr(serve, "run", note)
    assert run(["gateway", "--metrics", option, "--state-dir", str(tmp_path)]) == Exit.DONE
    assert [given.metrics_port for given in seen] == [port]


def test_without_metrics_the_gateway_serves(tmp_path: pathlib.Path) -> None:
    """It listens for clients alone."""

    async def tell() -> None:
        async with gateway(tmp_path, routed(a={}), metrics_port=None) as world:
            assert world.metrics_port == 0
            assert (await world.ask({"model": "nope"})).status == 404

    story(tell)
