"""Command lines, rank by rank, as the engines of today take them."""

import shlex

import pytest

from llmgw.engines import base
from llmgw.engines.registry import ADAPTERS, adapter
from llmgw.errors import Failed
from tests.agent.making import spec

TWO = ("node-a", "node-b")


def line(engine: str, program: str, weights: str, **changes: object) -> str:
    """The command line of a spec as one string."""
    shard = spec(engine=engine, **changes)  # type: ignore[arg-type]
    return shlex.join(adapter(engine).command(shard, weights, program).argv)


def test_llama_server_on_cpu_takes_no_card() -> None:
    """Rank 0 listens where its peers expect it, under the model's name, with metrics and no pages."""
    assert line("llamacpp", "/bin/llama-server", "/w/a.gguf") == (
        "/bin/llama-server -m /w/a.gguf --alias alpha --host 127.0.0.1 --port 20000 -c 512 -np 1"
        " --metrics --no-slots --no-ui --device none"
    )


def test_each_slot_of_llama_server_gets_the_whole_length() -> None:
    """`-c` is shared by the slots, so it is the model length times `parallel`."""
    got = line("llamacpp", "l", "w", max_model_len=4096, args=(("parallel", 4), ("threads", 2)))
    assert "-c 16384 -np 4" in got
    assert got.endswith("--device none --threads 2")
    assert "--parallel" not in got


def test_a_llama_replica_over_two_nodes_names_its_workers() -> None:
    """Rank 0 is told where the workers listen; a worker is the rpc server beside the server found."""
    first = line("llamacpp", "/b/llama-server-vulkan", "w", nodes=TWO, port=20000)
    worker = line("llamacpp", "/b/llama-server-vulkan", "w", nodes=TWO, rank=1, port=20010)
    assert "--rpc 127.0.0.1:20010 -ngl all" in first
    assert worker == "/b/ggml-rpc-server-vulkan -H 127.0.0.1 -p 20010"


def test_a_server_of_another_name_has_no_worker() -> None:
    """Where nothing tells which rpc server belongs to it, the node says so."""
    with pytest.raises(Failed, match=r"cannot run a worker of llama.cpp"):
        line("llamacpp", "/b/serve.sh", "w", nodes=TWO, rank=1, port=20010)


def test_vllm_on_one_node() -> None:
    """Parallelism, memory and length come from the profile, its own arguments last."""
    got = line(
        "vllm",
        "/v/vllm",
        "/w",
        gpus=("GPU-1", "GPU-2"),
        tensor_parallel=2,
        args=(
            ("enable-prefix-caching", True),
            ("enable_log_requests", False),
            ("lora-modules", ("a=b", "c=d")),
        ),
    )
    assert got == (
        "/v/vllm serve /w --served-model-name alpha --host 127.0.0.1 --port 20000 --tensor-parallel-size 2"
        " --gpu-memory-utilization 0.9 --max-model-len 512 --shutdown-timeout 10"
        " --enable-prefix-caching --no-enable-log-requests --lora-modules a=b c=d"
    )


def test_vllm_over_two_nodes_in_its_own_mode() -> None:
    """Both ranks meet at rank 0's second port; the worker is headless and gets no HTTP port."""
    parallel = {"tensor_parallel": 2, "pipeline_parallel": 2, "nodes": TWO}
    first = line("vllm", "vllm", "/w", port=20000, **parallel)
    worker = line("vllm", "vllm", "/w", rank=1, port=20010, **parallel)
    meet = "--master-addr 127.0.0.1 --master-port 20001"
    assert (
        f"--pipeline-parallel-size 2 --max-model-len 512 --shutdown-timeout 10 --nnodes 2 --node-rank 0 {meet}"
        in first
    )
    assert worker.endswith(f"--nnodes 2 --node-rank 1 {meet} --headless")
    assert "--host" not in worker
    assert "--port" not in worker


def test_vllm_over_ray_is_refused_with_what_works() -> None:
    """A way to run that is not built is an error with its remedy, not a wrong command line."""
    with pytest.raises(Failed) as caught:
        line("vllm", "vllm", "/w", nodes=TWO, distributed="ray")
    assert caught.value.help == "set distributed: mp"


def test_vllm_is_told_its_address_and_phones_nobody() -> None:
    """Multi-homed hosts need the address; the profile's environment comes after ours."""
    shard = spec(engine="vllm", env=(("VLLM_LOGGING_LEVEL", "WARNING"),))
    env = adapter("vllm").command(shard, "/w", "vllm").env
    assert dict(env) == {
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }


def test_sglang_over_two_nodes_serves_on_every_rank() -> None:
    """Each rank has its own port, both meet at rank 0's rendezvous block."""
    parallel = {"tensor_parallel": 2, "nodes": TWO, "gpus": ("GPU-1",)}
    worker = line("sglang", "/s/sglang", "/w", rank=1, port=20010, **parallel)
    assert worker == (
        "/s/sglang serve --model-path /w --served-model-name alpha --host 127.0.0.1 --port 20010 --tp-size 2"
        " --enable-metrics --context-length 512 --mem-fraction-static 0.9"
        " --nnodes 2 --node-rank 1 --dist-init-addr 127.0.0.1:20001"
    )


def test_sglang_runs_as_a_module_where_only_an_interpreter_is_known() -> None:
    """A configured Python runs the module; on CPU the device is said."""
    got = line("sglang", "/venv/bin/python3.12", "/w")
    assert got.startswith("/venv/bin/python3.12 -m sglang.launch_server --model-path /w")
    assert got.endswith("--device cpu")


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
def test_only_rank_0_answers_and_workers_join(engine: str) -> None:
    """Readiness is by role, for every engine."""
    first, worker = spec(engine=engine, nodes=TWO), spec(engine=engine, nodes=TWO, rank=1, port=20010)
    watches = [adapter(engine).watch(shard) for shard in (first, worker)]
    assert [(watch.ready, watch.port) for watch in watches] == [
        ("answers", 20000),
        ("joined", 20010 if engine == "llamacpp" else 20001),
    ]


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("llamacpp", (("embeddings", True),)),
        ("llamacpp", (("--embedding", True),)),
        ("vllm", (("task", "embed"),)),
        ("vllm", (("runner", "pooling"),)),
        ("vllm", (("conv", "embed"),)),
        ("sglang", (("is-embed", True),)),
        ("vllm", (("runner", "pooling"), ("convert", "embed"))),
        ("sglang", (("is_embedding", True),)),
    ],
)
def test_an_engine_for_embeddings_is_asked_for_one(engine: str, args: tuple[tuple[str, object], ...]) -> None:
    """A completion would never come, and it would never be ready."""
    assert adapter(engine).watch(spec(engine=engine, args=args)).canary == base.EMBEDDING


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("llamacpp", (("embeddings", False), ("parallel", 2))),
        ("vllm", (("runner", "generate"),)),
        ("vllm", (("runner", "pooling"), ("convert", "classify"))),
        ("sglang", ()),
    ],
)
def test_any_other_is_asked_for_a_completion(engine: str, args: tuple[tuple[str, object], ...]) -> None:
    """One real token is what most engines are for."""
    assert adapter(engine).watch(spec(engine=engine, args=args)).canary == base.COMPLETION


def test_an_engine_nobody_knows_is_named_with_those_we_know() -> None:
    """The message lists what there is."""
    with pytest.raises(Failed, match="cannot run engine 'tgi': this build knows llamacpp, sglang, vllm"):
        adapter("tgi")
