"""What engines say: their counters, and their last words."""

import sys

import pytest

from llmgw.engines import base
from llmgw.engines.registry import adapter

LLAMA = """# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:tokens_predicted_total 1.5e+03
"""
VLLM = """vllm:num_requests_running{engine="0",model_name="alpha"} 2.0
vllm:num_requests_running{engine="1",model_name="alpha"} 1.0
vllm:num_requests_waiting{engine="0",model_name="alpha"} 0.0
"""
HUGE = f"llamacpp:requests_processing {'9' * 5000}\nllamacpp:requests_deferred 1e999\n"


def test_load_is_running_and_waiting() -> None:
    """Each engine's gauges become the same two numbers, summed over its label sets."""
    assert adapter("llamacpp").load(LLAMA) == base.Load(1, 2)
    assert adapter("vllm").load(VLLM) == base.Load(3, 0)
    assert adapter("sglang").load("sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n") == base.Load(0, 0)


@pytest.mark.parametrize("text", ["", "<html>", "llamacpp:requests_processing 1\n", "\x00{}{}{} 1 2", HUGE])
def test_a_page_without_the_counters_tells_nothing(text: str) -> None:
    """Absence is not zero: no load is None, never idle."""
    assert adapter("llamacpp").load(text) is None


OWN = "llamacpp:requests_processing"


@pytest.mark.parametrize(
    "noise", ["x 1\n", "llamacpp_requests 1\n", " \n", "#\n", 'x{a="llamacpp:requests_deferred 1"} 1\n']
)
def test_lines_of_others_are_not_read(noise: str) -> None:
    """A page full of somebody else's numbers costs a search, not a look at each of them."""
    calls: list[str] = []
    text = noise * (300_000 // len(noise)) + f"{OWN} 1\r\nllamacpp:requests_deferred 2\nllamacpp:x_total 3\n"
    sys.setprofile(lambda _, what, __: calls.append(what))
    try:
        load, progress = adapter("llamacpp").load(text), adapter("llamacpp").progress(text)
    finally:
        sys.setprofile(None)
    assert (load, progress) == (base.Load(1, 2), 3.0)
    assert len(calls) < 200


@pytest.mark.parametrize("tail", ["{", "{\n} 9", "{} \n9", "x 9", "_more 9", " 9" * 3])
def test_a_line_ends_where_it_ends(tail: str) -> None:
    """What is open at its end takes nothing of the next line, and a longer name is another one."""
    text = f"{OWN}{tail}\n{OWN} 1\nllamacpp:requests_deferred 2\n"
    assert adapter("llamacpp").load(text) == base.Load(10 if tail.startswith(" 9") else 1, 2)


@pytest.mark.parametrize(("load", "idle"), [((0, 0), True), ((1, 0), False), ((0, 1), False)])
def test_idle_is_nothing_running_and_nothing_waiting(load: tuple[int, int], idle: bool) -> None:
    """A queue is work too."""
    assert base.Load(*load).idle is idle


def test_an_exit_is_explained_by_the_last_real_error() -> None:
    """The line that helps is seldom the last one."""
    log = (
        "INFO loading\n"
        "ValueError: Total number of attention heads (4) must be divisible by tensor parallel size (3).\n"
        "FutureWarning: this error class is deprecated\n"
        "bye\n"
    )
    assert adapter("vllm").explain(1, log) == (
        "exit 1: ValueError: Total number of attention heads (4) must be divisible by tensor parallel size (3)."
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit 0"),
        (-15, "killed by SIGTERM"),
        (-60, "killed by signal 60"),
        (None, "ended, exit status unknown (another agent had started it)"),
    ],
)
@pytest.mark.parametrize("log", ["\n \n", "I slot release: stop processing: n_tokens = 2\n"])
def test_a_log_without_an_error_leaves_the_exit(code: int | None, said: str, log: str) -> None:
    """Signals have names, what nobody can know is said to be unknown, and chatter is no reason."""
    assert adapter("llamacpp").explain(code, log) == said


def test_sglang_that_killed_itself_is_not_called_out_of_memory() -> None:
    """SIGKILL is what SGLang does to its own tree."""
    assert "does this to itself" in adapter("sglang").explain(-9, "RuntimeError: boom")


def test_an_engines_words_are_data() -> None:
    """Control and bidi characters of a log never reach a terminal, and a long line is cut."""
    said = base.last_error("error: \x1b[31m\u202ered " + "x" * 1000)
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert len(said) == 300
