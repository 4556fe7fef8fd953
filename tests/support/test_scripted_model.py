"""The weights of the tests are real: llama-server loads them, and they say what the test wrote."""

import pathlib
from collections.abc import Callable

import pytest

from tests.support import engines, scripted_model

Weights = Callable[..., pathlib.Path]


def test_answers_are_scripted(tmp_path: pathlib.Path, scripted: Weights) -> None:
    """Whatever is asked, and however hot, the answer is the sentence: content tells who answered."""
    with engines.running(tmp_path, scripted("I am alpha, as ever.")) as engine:
        answers = {engine.chat(prompt, temperature=heat) for prompt in ("hi", "who?\n") for heat in (0, 1.5)}

    assert answers == {"I am alpha, as ever."}


def test_loops_last_as_long_as_asked(tmp_path: pathlib.Path, scripted: Weights) -> None:
    """A looping model speaks until `max_tokens`, so a stream can be as long as a test needs."""
    with engines.running(tmp_path, scripted("tick tock", loop=True), name="clock") as engine:
        answer = engine.chat(max_tokens=600)

    assert answer.split() == ["tick", "tock"] * 300


def test_a_file_is_written_once(tmp_path: pathlib.Path) -> None:
    """Asked for the same sentence twice, the second answer is the first file; a loop is another file."""
    first = scripted_model.cached(tmp_path, "I am beta.")
    written = first.stat().st_mtime_ns
    again = scripted_model.cached(tmp_path, "I am beta.")
    loop = scripted_model.cached(tmp_path, "I am beta.", loop=True)

    assert (again, again.stat().st_mtime_ns) == (first, written)
    assert scripted_model.sha256(loop) != scripted_model.sha256(first)


@pytest.mark.parametrize("sentence", ["no no never", "a", " ".join(f"word{n}" for n in range(200))])
def test_a_script_that_cannot_be_followed_is_refused(sentence: str) -> None:
    """A word that occurs twice has two successors, a letter is no word, and there are 127 places."""
    with pytest.raises(ValueError, match="cannot script"):
        scripted_model.script_of(sentence, loop=False)
