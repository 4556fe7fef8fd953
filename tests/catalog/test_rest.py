"""A document that is wrong somewhere is asked about everything else: nobody mends one mistake to meet the next."""

import pytest

from tests.catalog.samples import MODEL, PROFILE, codes

WRONG = PROFILE.replace("engine: vllm", "engine: vllm\nmax_model_len: 32k")


def test_a_wrong_field_hides_no_other_mistake() -> None:
    """Flags, variables and products are checked beside a length that is no number."""
    text = WRONG + "args: {tp: 4, trust-remote-code: true}\nenv: {LD_PRELOAD: x}\npipeline_parallel: 3\n"

    assert codes(MODEL, text) == ["E205", "E211", "E212", "E213", "E401"]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("args: {--x: 1, tp: 4}\n", ["E206", "E211"]),
        ("args: {x: {a: 1}, tp: 4}\n", ["E206", "E211"]),
        ("env: {1A: x, HF_TOKEN: y}\n", ["E206", "E213"]),
        ("args: [tp]\nenv: {HF_TOKEN: y}\n", ["E205", "E213"]),
    ],
)
def test_of_a_mapping_only_the_wrong_keys_are_left_out(more: str, found: list[str]) -> None:
    """A flag that cannot be passed does not hide the one that llmgw owns."""
    assert codes(MODEL, PROFILE + more) == found


@pytest.mark.parametrize("field", ["nodes: two", "pipeline_parallel: 0", "data_parallel: x"])
def test_what_a_wrong_number_would_make_is_not_said(field: str) -> None:
    """Products of a number that nobody knows are nobody's mistake."""
    assert len(codes(MODEL, PROFILE + f"{field}\n")) == 1


def test_names_are_checked_in_a_model_that_is_wrong() -> None:
    """An unknown profile and an unknown fallback are told with the slip beside them, a moving revision too."""
    text = MODEL.replace("[h100-tp4]", "[h100-tp4, none]").replace("@6f6073b", "@main")

    assert sorted(codes(text + "protekt: true\nfallbacks: [nobody]\n", PROFILE)) == [
        "E203", "E301", "E302", "W504",
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["name: Llama", "source: 7", "profiles: h100-tp4", "profiles: []"])
def test_what_stands_in_for_a_wrong_field_is_seen_by_nobody(line: str) -> None:
    """A required field that is wrong is one problem."""
    field = line.partition(":")[0]
    lines = [line if old.startswith(f"{field}:") else old for old in MODEL.splitlines()]

    assert len(codes("\n".join(lines) + "\n", PROFILE)) == 1
