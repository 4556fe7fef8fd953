"""The clients that judge an operation see what a client sees: answers, and every failure."""

import pathlib
from collections.abc import Callable

import pytest

from tests.support import engines
from tests.support.clients import Steady, client, plain, streamed
from tests.support.ports import free_port
from tests.support.waiting import wait_for

Weights = Callable[..., pathlib.Path]


def test_a_steady_client_counts_what_it_got(tmp_path: pathlib.Path, scripted: Weights) -> None:
    """Against an engine that lives, every request is answered, plain and streamed alike."""
    with (
        engines.running(tmp_path, scripted("I am steady.")) as engine,
        Steady(engine.port, engine.name) as steady,
    ):
        wait_for(lambda: steady.done >= 10, "ten answers")

    assert set(steady.answers) == {"I am steady."}
    assert steady.failures == []


def test_a_steady_client_sees_an_engine_die(tmp_path: pathlib.Path, scripted: Weights) -> None:
    """A killed engine shows as failures that say so: a run without any had a living engine."""
    with (
        engines.running(tmp_path, scripted("I am mortal.")) as engine,
        Steady(engine.port, engine.name) as steady,
    ):
        wait_for(lambda: steady.done, "the first answer")
        engine.process.kill()
        wait_for(lambda: len(steady.failures) > 1, "failures after the death")

    assert "Connection" in steady.failures[-1].said


def test_a_stream_that_was_cut_short_is_no_answer(tmp_path: pathlib.Path, scripted: Weights) -> None:
    """A stream must end with `stop`; one that ends by length is told from a whole one."""
    weights = scripted("on and", loop=True)
    with engines.running(tmp_path, weights, args=("-n", "5")) as engine, client(engine.port) as asked:
        assert plain(asked, engine.name).split() == ["on", "and", "on", "and", "on"]
        with pytest.raises(ValueError, match="the stream ended with 'length'"):
            streamed(asked, engine.name)


def test_a_client_does_not_retry() -> None:
    """A refused connection is a failure at once: retries would hide what an operation did."""
    with Steady(free_port(), "nobody", clients=1) as steady:
        wait_for(lambda: steady.failures, "the refusal is told", within=5.0)

    assert (steady.done, steady.failures[0].number) == (0, 0)
