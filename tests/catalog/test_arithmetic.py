"""Five numbers, one equation: what is left out follows, what contradicts is said with its numbers."""

import pytest

from llmgw.catalog.arithmetic import Shape, disagreement, shape
from llmgw.catalog.documents import PROFILES, AnyProfile
from tests.catalog import samples


def profile(engine: str, **fields: object) -> AnyProfile:
    return PROFILES[engine].model_validate({"kind": "profile", "name": "p", "engine": engine, **fields})


PCP = {"prefill-context-parallel-size": 2}


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
        ("vllm", {"gpus_per_node": 8, "args": PCP}, Shape(1, 8, 4, 1, 1)),
        ("vllm", {"tensor_parallel": 4, "args": PCP}, Shape(1, 8, 4, 1, 1)),
        ("vllm", {"gpus_per_node": 8, "tensor_parallel": 4, "args": PCP}, Shape(1, 8, 4, 1, 1)),
        ("sglang", {"gpus_per_node": 4, "tensor_parallel": 4, "args": PCP}, Shape(1, 4, 4, 1, 1)),
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


@pytest.mark.parametrize(
    ("fields", "said", "repair"),
    [
        ({"tensor_parallel": 4, "gpus_per_node": 4, "args": PCP},
         "tensor_parallel 4 × prefill-context-parallel-size 2 needs 8 GPUs, 1 node × 4 has 4", "set nodes: 2"),
        ({"tensor_parallel": 4, "gpus_per_node": 4, "args": {"prefill_context_par": "2"}},
         "tensor_parallel 4 × prefill-context-parallel-size 2 needs 8 GPUs, 1 node × 4 has 4", "set nodes: 2"),
        ({"gpus_per_node": 1, "args": PCP},
         "prefill-context-parallel-size 2 needs 2 GPUs, 1 node × 1 has 1", "set nodes: 2"),
    ],
)  # fmt: skip
def test_an_argument_that_needs_gpus_is_counted(fields: dict[str, object], said: str, repair: str) -> None:
    """vLLM multiplies its ranks by prefill context parallelism, which has no field here."""
    found = disagreement(profile("vllm", **fields))

    assert found is not None
    assert (found.said, found.help) == (said, repair)


@pytest.mark.parametrize(
    ("engine", "nodes", "gpus", "degrees", "codes"),
    [
        # SGLang starts max(stages // nodes, 1) stages on each node: the third would be started nowhere.
        ("sglang", 2, 3, "tensor_parallel: 2\npipeline_parallel: 3", ["E407"]),
        ("sglang", 3, 2, "tensor_parallel: 3\npipeline_parallel: 2", ["E407"]),
        ("sglang", 2, 0, "tensor_parallel: 2\npipeline_parallel: 3\ncpu: {cores: 1, memory: 1GiB}", ["E407"]),
        ("sglang", 2, 4, "tensor_parallel: 4\npipeline_parallel: 2", []),
        ("sglang", 2, 4, "tensor_parallel: 2\npipeline_parallel: 4", []),
        ("sglang", 4, 2, "tensor_parallel: 4\npipeline_parallel: 2", []),
        ("sglang", 1, 6, "tensor_parallel: 2\npipeline_parallel: 3", []),
        # vLLM: nodes % (DP / DP per node) must be 0.
        ("vllm", 2, 3, "tensor_parallel: 2\ndata_parallel: 3", ["E407"]),
        ("vllm", 3, 2, "tensor_parallel: 3\ndata_parallel: 2", ["E407"]),
        ("vllm", 2, 4, "tensor_parallel: 2\ndata_parallel: 4", []),
        ("vllm", 4, 2, "tensor_parallel: 4\ndata_parallel: 2", []),
        ("vllm", 1, 6, "tensor_parallel: 2\ndata_parallel: 3", []),
        # Its stages may begin anywhere.
        ("vllm", 2, 3, "tensor_parallel: 2\npipeline_parallel: 3", []),
    ],
)  # fmt: skip
def test_no_node_boundary_cuts_what_an_engine_keeps_whole(
    engine: str, nodes: int, gpus: int, degrees: str, codes: list[str]
) -> None:
    """The products agree in all of these; the engine would refuse some, or wait for ranks that nobody starts."""
    checked = samples.checked(
        f"kind: profile\nname: p\nengine: {engine}\nnodes: {nodes}\ngpus_per_node: {gpus}\n{degrees}\n"
    )
    assert [problem.code for problem in checked.diagnostics if problem.severity == "error"] == codes
