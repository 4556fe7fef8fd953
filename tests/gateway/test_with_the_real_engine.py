"""The official client, the gateway in a process of its own, and llama-server."""

import pathlib
import socket
from collections.abc import Callable

import openai
import pydantic
import pytest

from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from tests.support import clients, engines
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, run_llmgw
from tests.support.waiting import wait_for

Scripted = Callable[..., pathlib.Path]


def start(
    processes: Processes, directory: pathlib.Path, routes: Routes, *options: str
) -> tuple[Process, int]:
    """A gateway that has this table from before, and no control plane. The process and its port."""
    state = directory / "gateway"
    state.mkdir(exist_ok=True)
    (state / "routes.json").write_bytes(pydantic.TypeAdapter(Routes).dump_json(routes))
    port, metrics = free_port(), free_port()
    process = processes.llmgw(
        f"gateway-{port}",
        *("gateway", "--listen", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}"),
        *("--state-dir", str(state), "--control", f"127.0.0.1:{free_port()}"),
    )
    wait_for(lambda: "listening" in process.err.read_text(), "the gateway listens")
    return process, port


def table(*running: engines.Engine) -> Routes:
    """The model `scripted`, also known as `gpt`, on these engines."""
    ends = tuple(
        Endpoint(f"scripted/{n}", "scripted", "127.0.0.1", engine.port) for n, engine in enumerate(running)
    )
    return Routes(1, models=(RoutedModel("scripted", aliases=("gpt",)),), endpoints=ends)


def test_the_openai_client_is_answered_plain_and_streamed(
    tmp_path: pathlib.Path, scripted: Scripted, processes: Processes
) -> None:
    """By name and by alias, whole and in chunks: the sentence that the weights recite."""
    with engines.running(tmp_path, scripted("I am alpha.")) as engine:
        _, port = start(processes, tmp_path, table(engine))
        with clients.client(port) as client:
            assert [card.id for card in client.models.list()] == ["scripted", "gpt"]
            for name in ("scripted", "gpt"):
                assert clients.plain(client, name) == "I am alpha."
                assert clients.streamed(client, name) == "I am alpha."
            with pytest.raises(openai.NotFoundError, match="cannot find the model 'nope'"):
                clients.plain(client, "nope")


def test_a_killed_engine_is_told_in_the_middle_of_a_stream(
    tmp_path: pathlib.Path, scripted: Scripted, processes: Processes
) -> None:
    """SIGKILL under a stream: the client raises, instead of holding half a story for a whole one."""
    engine = engines.start(processes, scripted("one two three four", loop=True))
    engines.wait_ready(engine)
    _, port = start(processes, tmp_path, table(engine))
    with clients.client(port) as client:
        chunks = client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "go"}], stream=True, max_tokens=100_000
        )
        next(chunks), next(chunks)
        engine.process.kill()
        with pytest.raises(openai.APIError, match="cannot finish this answer"):
            for _ in chunks:
                pass


def test_one_of_two_engines_is_killed_and_nobody_notices(
    tmp_path: pathlib.Path, scripted: Scripted, processes: Processes
) -> None:
    """Clients that never stop asking, plain and streamed: no request between two chunks fails, all are answered."""
    one, two = (
        engines.start(processes, scripted(text), name="scripted") for text in ("I am one.", "I am two.")
    )
    for engine in (one, two):
        engines.wait_ready(engine)
    _, port = start(processes, tmp_path, table(one, two))
    with clients.Steady(port, "scripted") as steady:
        wait_for(lambda: len(steady.answers) == 2, "both have answered")
        one.process.kill()
        had, before = steady.answers["I am one."], steady.done
        wait_for(lambda: steady.done > before + 40, "clients went on")
    cut = [failure for failure in steady.failures if "cannot finish this answer" not in failure.said]
    assert cut == []
    assert steady.answers["I am one."] <= had + 1


def test_a_stop_is_clean(tmp_path: pathlib.Path, processes: Processes) -> None:
    """SIGTERM: exit 0, nothing on stderr that looks like a crash."""
    process, _ = start(processes, tmp_path, table())
    assert process.stop() == 0
    assert "Traceback" not in process.err.read_text()


def test_a_port_that_is_held_is_said(tmp_path: pathlib.Path) -> None:
    """No traceback: what cannot be done, why, and which option would help."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        done = run_llmgw(
            "gateway",
            "--listen",
            f"127.0.0.1:{port}",
            "--metrics",
            "127.0.0.1:0",
            "--state-dir",
            str(tmp_path),
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr
