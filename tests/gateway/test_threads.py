"""A gateway at the limit of its processes serves on."""

import pathlib

import pytest

from tests.gateway.engine import engines, says
from tests.gateway.world import gateway, routed, story, until
from tests.support.no_threads import no_threads

pytestmark = pytest.mark.usefixtures("loop")


def test_a_table_that_no_thread_keeps_is_served_by(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said; the next one is kept, once there is a thread."""

    async def tell() -> None:
        async with (
            engines(a1=says("one"), a2=says("two")) as [one, two],
            gateway(tmp_path, routed(one.endpoint())) as world,
        ):
            kept = tmp_path / "gateway" / "routes.json"
            await until(kept.exists, "the first table is kept")
            with no_threads() as asked:
                begun = len(asked)
                version = await world.control.publish(two.endpoint())
                await until(lambda: world.control.acked(version), "it is in effect")
                await until(lambda: len(asked) > begun, "a thread is asked for")
                await until(lambda: "cannot keep the routing table" in caplog.text, "it is said")
                answer = await world.ask({"model": "a", "messages": []})
                assert (answer.status, len(two.asked)) == (200, 1)
                assert not world.running.done()
            version = await world.control.publish(one.endpoint(), two.endpoint())
            await until(lambda: f'"version":{version}' in kept.read_text(), "the next one is kept")
            assert len(world.control.subscribed) == 1

    story(tell)
