"""A catalog against its models' files: what a person reads, and where it points."""

import dataclasses

from llmgw.catalog.diagnostics import as_text
from llmgw.catalog.facts import ModelFacts, Weights
from llmgw.catalog.hf_config import facts_of
from llmgw.catalog.memory import GIB
from llmgw.catalog.model_checks import model_problems
from tests.catalog.samples import MODEL, PROFILE, catalog
from tests.support import models

LLAMA = dataclasses.replace(facts_of(models.LLAMA_70B), weights=Weights(131 * GIB))


def said(profile: str, facts: ModelFacts) -> str:
    """What is said of the sample model on `profile`."""
    known = catalog(MODEL, profile)
    return as_text(model_problems(known, {model.cache_name: facts for model in known.models.values()}))


def test_a_refusal_points_at_the_number_and_names_the_model() -> None:
    """Profile and model are in two files: both places are shown."""
    odd = PROFILE.replace("gpus_per_node: 4", "gpus_per_node: 4\npipeline_parallel: 4\nnodes: 25")
    assert said(odd, facts_of(models.GRANITE)).split("\n\n")[0].splitlines() == [
        "error[E501]: vllm cannot run llama like this: 32 attention heads cannot be shared evenly by 25 ranks",
        " --> 001.yaml:4:1",
        "  |",
        "4 | gpus_per_node: 4",
        "  | ^^^^^^^^^^^^^",
        " ::: 000.yaml:3:1",
        "  |",
        "3 | source: hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b",
        "  | ------ llama is the model",
        "  = help: tensor_parallel 1, 2, 4, 8, 16 or 32 would do",
    ]
    written = PROFILE.replace("gpus_per_node: 4", "gpus_per_node: 5\ntensor_parallel: 5")
    assert " --> 001.yaml:5:1" in said(written, facts_of(models.GRANITE))


def test_a_card_that_is_too_small_is_a_warning_with_its_numbers() -> None:
    """The profile permits larger cards too: it is for the operator to know."""
    tight = PROFILE.replace("gpus_per_node: 4", "gpus_per_node: 1\ngpu: {memory: 80GiB}\nmax_model_len: 4096")
    assert said(tight, LLAMA).startswith("warning[W520]: llama: ")
    assert "short of one sequence of 4096 tokens on each card of 79.2 GiB (estimated; see llmgw fit)" in said(
        tight, LLAMA
    )
    assert said(tight.replace("gpus_per_node: 1", "gpus_per_node: 4"), LLAMA) == ""


def test_a_booking_that_is_too_small_is_a_warning() -> None:
    """What a shard books on its node is held against what it will take."""
    booked = "kind: profile\nname: h100-tp4\nengine: llamacpp\ngpus_per_node: 0\ncpu: {cores: 4, memory: 8GiB}\nmax_model_len: 4096\n"
    assert "on the booked memory of 8 GiB" in said(booked, LLAMA)
    assert said(booked.replace("8GiB", "160GiB"), LLAMA) == ""


def test_a_model_without_facts_has_no_problem() -> None:
    """What is unknown excludes nothing."""
    assert model_problems(catalog(MODEL, PROFILE), {}) == []
