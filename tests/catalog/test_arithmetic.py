"""Five numbers, one equation: what is left out follows, what contradicts is said with its numbers."""

import pytest

from llmgw.catalog.arithmetic import Shape, disagreement, shape
from llmgw.catalog.documents import PROFILES, AnyProfile


def profile(engine: str, **fields: object) -> AnyProfile:
    return PROFILES[engine].model_validate({"kind": "profile", "name": "p", "engine": engine, **fields})


@pytest.mark.parametrize(
    ("engine", "fields", "expected"),
    [
        ("vllm", {}, Shape(1, 1, 1, 1, 1)),
        ("vllm", {"gpus_per_node": 8}, Shape(1, 8, 8, 1, 1)),
        ("vllm", {"tensor_parallel": 4}, Shape(1, 4, 4, 1, 1)),
        ("vllm", {"nodes": 2, "gpus_per_node": 8}, Shape(2, 8, 16, 1, 1)),
        ("vllm", {"nodes": 2, "gpus_per_node": 8, "pipeline_parallel": 2}, Shape(2, 8, 8, 2, 1)),
        ("vllm", {"nodes": 2, "tensor_parallel": 8, "pipeline_parallel": 2}, Shape(2, 8, 8, 2, 1)),
        ("vllm", {"gpus_per_node": 8, "data_parallel": 4}, Shape(1, 8, 2, 1, 4)),
        ("vllm", {"gpus_per_node": 0, "tensor_parallel": 2}, Shape(1, 0, 2, 1, 1)),
        ("vllm", {"gpus_per_node": 0}, Shape(1, 0, 1, 1, 1)),
        ("sglang", {"gpus_per_node": 8, "data_parallel": 4}, Shape(1, 8, 8, 1, 4)),
        ("llamacpp", {"nodes": 3, "gpus_per_node": 2}, Shape(3, 2)),
        ("llamacpp", {"nodes": 2, "gpus_per_node": 0}, Shape(2, 0)),
    ],
)
def test_what_is_left_out_follows(engine: str, fields: dict[str, object], expected: Shape) -> None:
    """GPUs follow from degrees and degrees from GPUs, and then nothing disagrees."""
    found = profile(engine, **fields)

    assert shape(found) == expected
    assert disagreement(found) is None


@pytest.mark.parametrize(
    ("engine", "numbers", "said", "repair"),
    [
        ("vllm", (1, 4, 4, 2, 1), "tensor_parallel 4 × pipeline_parallel 2 needs 8 GPUs, 1 node × 4 has 4", "set nodes: 2"),
        ("vllm", (2, 8, 4, 2, 1), "tensor_parallel 4 × pipeline_parallel 2 needs 8 GPUs, 2 nodes × 8 has 16", "set tensor_parallel: 8"),
        ("vllm", (1, 1, 1, 1, 8), "data_parallel 8 needs 8 GPUs, 1 node × 1 has 1", "set nodes: 8"),
        ("vllm", (1, 3, 4, 1, 1), "tensor_parallel 4 needs 4 GPUs, 1 node × 3 has 3", "set tensor_parallel: 3"),
        ("vllm", (2, 3, 1, 4, 1), "pipeline_parallel 4 needs 4 GPUs, 2 nodes × 3 has 6", "set gpus_per_node: 2"),
        ("vllm", (2, 3, 1, 5, 1), "pipeline_parallel 5 needs 5 GPUs, 2 nodes × 3 has 6", "make the two products equal"),
        ("sglang", (1, 1, 2, 1, 2), "tensor_parallel 2 needs 2 GPUs, 1 node × 1 has 1", "set nodes: 2"),
        ("vllm", (2, 0, 3, 1, 1), "tensor_parallel 3 makes 3 processes, which 2 nodes cannot share evenly", "set tensor_parallel: 2"),
    ],
)  # fmt: skip
def test_what_contradicts_is_said(
    engine: str, numbers: tuple[int, int, int, int, int], said: str, repair: str
) -> None:
    """The sentence has every number, and the change it offers is one that would do."""
    names = ("nodes", "gpus_per_node", "tensor_parallel", "pipeline_parallel", "data_parallel")
    fields: dict[str, object] = dict(zip(names, numbers, strict=True))

    found = disagreement(profile(engine, **fields))

    assert found is not None
    assert (found.said, found.help) == (said, repair)
    if repair.startswith("set "):
        name, _, value = repair.removeprefix("set ").partition(": ")
        assert disagreement(profile(engine, **{**fields, name: int(value)})) is None
