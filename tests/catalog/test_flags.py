"""No spelling gets past: flags that llmgw writes, flags with power, variables that are not free."""

import pytest

from llmgw.catalog import flags
from llmgw.catalog.documents import PROFILES
from llmgw.catalog.engine_facts import FACTS
from llmgw.catalog.model import Profile
from llmgw.catalog.sources import parse
from llmgw.engines.registry import ADAPTERS
from llmgw.fleet.shard import PORTS_PER_SHARD, Peer, ShardSpec
from tests.support.held import held_after

FREE_ALTHOUGH_WRITTEN = {"ngl"}
"""What an adapter writes only as a default: the profile's own value stands after it and wins."""


@pytest.mark.parametrize(
    ("engine", "flag", "meant"),
    [
        ("vllm", "port", "port"),
        ("vllm", "tensor_parallel_size", "tensor-parallel-size"),
        ("vllm", "tensor-parallel-si", "tensor-parallel-size"),
        ("vllm", "tp", "tp"),
        ("vllm", "po", "port"),
        ("vllm", "no-headless", "headless"),
        ("vllm", "no_head", "headless"),
        ("vllm", "model.x", "model"),
        ("sglang", "mem_fraction_static", "mem-fraction-static"),
        ("sglang", "context", "context-length"),
        ("llamacpp", "c", "c"),
        ("llamacpp", "no-slots", "slots"),
        ("llamacpp", "no_webui", "webui"),
        ("llamacpp", "np", "np"),
    ],
)
def test_owned_flags_are_known_in_every_spelling(engine: str, flag: str, meant: str) -> None:
    """Underscores, negations, dots, short forms and beginnings mean the flag they mean to the engine."""
    assert flags.owned(flag, engine) == meant


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "enable-prefix-caching"),
        ("vllm", "tokenizer"),
        ("vllm", "tokenizer-mode"),
        ("vllm", "max-num-seqs"),
        ("vllm", "distributed-timeout-seconds"),
        ("sglang", "chunked-prefill-size"),
        ("llamacpp", "threads"),
        ("llamacpp", "parallel"),
        ("llamacpp", "C"),
        ("llamacpp", "cache-type-k"),
        ("llamacpp", "no-mmap"),
        ("llamacpp", "por"),
    ],
)
def test_other_flags_are_free(engine: str, flag: str) -> None:
    """What llmgw does not write, people may; llama.cpp completes nothing."""
    assert flags.owned(flag, engine) is None
    assert flags.powerful(flag, engine) is None


@pytest.mark.parametrize(
    ("engine", "flag", "meant"),
    [
        ("vllm", "decode_context_parallel_size", "decode-context-parallel-size"),
        ("vllm", "decode-context-parallel", "decode-context-parallel-size"),
        ("vllm", "dcp", "decode-context-parallel-size"),
        ("vllm", "enable-expert", "enable-expert-parallel"),
        ("vllm", "max_num_seq", "max-num-seqs"),
        ("vllm", "hf-over.rope_parameters.factor", "hf-overrides.rope_parameters.factor"),
        ("sglang", "expert-parallel-size", "ep-size"),
        ("sglang", "ep", "ep-size"),
        ("sglang", "is-emb", "is-embedding"),
        ("llamacpp", "ub", "ubatch-size"),
        # Two flags begin like this, or none that llmgw goes by; llama.cpp completes nothing.
        ("vllm", "max-num", "max-num"),
        ("vllm", "enable_prefix_caching", "enable-prefix-caching"),
        ("vllm", "kv-cache-dtype-skip-layers", "kv-cache-dtype-skip-layers"),
        ("vllm", "no-enforce-eager", "no-enforce-eager"),
        ("sglang", "decode-context-parallel", "decode-context-parallel"),
        ("llamacpp", "ubatch", "ubatch"),
    ],
)
def test_flags_that_llmgw_goes_by_are_known_in_every_spelling(engine: str, flag: str, meant: str) -> None:
    """A value that the engine takes and nobody here hears is a check that was not made."""
    assert flags.whole(flag, engine) == meant


@pytest.mark.parametrize(
    "flag", ["trust-remote-code", "trust_remote_code", "trust-rem", "no-trust-remote-code"]
)
def test_power_has_every_spelling_too(flag: str) -> None:
    """Code from a model's repository needs a yes, however the flag is written."""
    assert flags.powerful(flag, "vllm") == "trust-remote-code"


@pytest.mark.parametrize(
    "variable",
    ["LD_PRELOAD", "PYTHONPATH", "PATH", "CUDA_VISIBLE_DEVICES", "VLLM_HOST_IP", "LLAMA_ARG_PORT", "LLMGW_SHARD",
     "HF_TOKEN", "VLLM_API_KEY", "aws_secret_access_key", "DB_PASSWORD", "TOKEN", "ApiKey", "API_KEY", "SECRET_ID",
     "MYSQL_PASSWD", "SSH_PASSPHRASE", "TLS_PRIVATE_KEY_PEM", "GGML_BACKEND_PATH", "CUDA_INJECTION64_PATH",
     "VLLM_NCCL_SO_PATH", "VLLM_CUDART_SO_PATH", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
     "NVSHMEM_BOOTSTRAP_PLUGIN", "NIXL_PLUGIN_DIR", "VLLM_PLUGINS", "NCCL_CONF_FILE", "HSA_TOOLS_LIB", "ROCP_TOOL_LIBRARIES",
     "NVTX_INJECTION64_PATH", "OPENSSL_CONF", "OPENSSL_MODULES", "VLLM_LOGGING_CONFIG_PATH", "SGLANG_LOGGING_CONFIG_PATH",
     "SGLANG_EXTERNAL_MODEL_PACKAGE", "RAY_PRELOAD_PYTHON_MODULES", "RAY_RUNTIME_ENV_HOOK", "FI_PROVIDER_PATH",
     "VK_ICD_FILENAMES", "OCL_ICD_VENDORS", "UCX_MODULE_DIR", "TPU_LIBRARY_PATH", "TRITON_LIBCUDA_PATH",
     "TRITON_CACHE_MANAGER", "CPLUS_INCLUDE_PATH", "FLASHINFER_EXTRA_CFLAGS", "CC", "CXX", "FLASHINFER_NVCC",
     "DG_JIT_NVCC_COMPILER", "NVCC_PREPEND_FLAGS", "CUDAHOSTCXX", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH",
     "GIT_SSH_COMMAND", "GIT_ASKPASS", "PAGER", "SHELLOPTS", "OPENAI_KEY", "AZURE_STORAGE_KEY", "ENCRYPTION_KEY", "KEY",
     "DB_PASS", "GITHUB_PAT", "HTTP_AUTHORIZATION", "BEARER", "SESSION_JWT"],
)  # fmt: skip
def test_reserved_variables(variable: str) -> None:
    """What loads code, what llmgw sets and what hides a secret has a reason."""
    assert flags.reserved(variable)


ORDINARY = [
    "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_PKEY", "NCCL_NET", "NCCL_NET_GDR_LEVEL",
    "NCCL_P2P_DISABLE", "NCCL_CUMEM_ENABLE",
    "NCCL_TOPO_FILE", "GLOO_SOCKET_IFNAME", "UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER", "NVSHMEM_REMOTE_TRANSPORT",
    "TORCH_NCCL_BLOCKING_WAIT",
    "VLLM_USE_V1", "VLLM_LOGGING_LEVEL", "VLLM_CONFIGURE_LOGGING", "VLLM_ATTENTION_BACKEND",
    "VLLM_WORKER_MULTIPROC_METHOD",
    "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CACHE_ROOT", "VLLM_USE_DEEP_GEMM",
    "VLLM_PP_LAYER_PARTITION",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE",
    "VLLM_SKIP_P2P_CHECK",
    "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS", "VLLM_XGRAMMAR_CACHE_MB", "VLLM_KV_CACHE_LAYOUT",
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "SGLANG_CPU_OMP_THREADS_BIND", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "SGLANG_WARMUP_TIMEOUT",
    "SGLANG_LOG_MS",
    "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK", "TOKENIZERS_PARALLELISM", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_DISABLE_XET",
    "HF_TOKEN_PATH",
    "TRANSFORMERS_VERBOSITY", "OMP_NUM_THREADS", "OMP_TOOL", "MKL_NUM_THREADS", "KMP_AFFINITY", "MALLOC_ARENA_MAX",
    "MAX_TOKENS", "MAX_JOBS",
    "NVCC_THREADS", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
    "CUDA_CACHE_PATH", "ROCM_PATH",
    "HSA_OVERRIDE_GFX_VERSION", "HSA_NO_SCRATCH_RECLAIM", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "TORCH_CUDA_ARCH_LIST",
    "TORCH_LOGS", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TRITON_HOME",
    "FLASHINFER_CUDA_ARCH_LIST",
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_VK_PREFER_HOST_MEMORY", "RAY_DEDUP_LOGS", "OTEL_SERVICE_NAME",
    "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "TZ", "LANG", "LC_ALL", "TERM", "TMPDIR", "XDG_CACHE_HOME", "NOTE",
]  # fmt: skip


@pytest.mark.parametrize("variable", ORDINARY)
def test_other_variables_are_free(variable: str) -> None:
    """Tuning an engine is what `env` is for."""
    assert flags.reserved(variable) is None
    assert flags.reserved(variable, "1") is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "http://user:password@proxy:3128"),
        ("https_proxy", "http://user:p%40ss@proxy"),
        ("ALL_PROXY", "socks5://:password@127.0.0.1:1080"),
        ("DATABASE_URL", "postgres://u:p@db/x"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x=1,Authorization=Bearer abc"),
        ("DB_PASS", "hunter2"),
        ("API_KEY", "1"),
    ],
)
def test_no_value_gives_a_secret_away(variable: str, value: str) -> None:
    """Whatever the variable is called, its password would be in the repository."""
    assert flags.reserved(variable, value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("HTTPS_PROXY", "http://user@proxy:3128"),
        ("ENDPOINTS", "tcp://a:1,tcp://b:2,me@example.com"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4317/v1/traces"),
        ("NOTE", "ask me@example.com: at 10:30"),
        ("SGLANG_LOG_DECODE_GRAPH_KEY", "true"),
        ("SGLANG_LOG_DECODE_GRAPH_KEY", "0"),
    ],
)
def test_what_is_no_secret_is_free(variable: str, value: str) -> None:
    """An address without a password, and a name that only turns something on."""
    assert flags.reserved(variable, value) is None


@pytest.mark.parametrize("engine", list(FACTS))
@pytest.mark.parametrize("rank", [0, 1])
def test_what_an_adapter_writes_nobody_else_may(engine: str, rank: int) -> None:
    """A flag or variable that llmgw writes and a profile could write too would stand there twice."""
    command = ADAPTERS[engine].command(gang(engine, rank), "/weights", f"/bin/{ADAPTERS[engine].programs[0]}")
    if engine == "llamacpp" and rank:
        return  # another program, which gets no arguments of the profile

    written = {word.lstrip("-") for word in command.argv if word.startswith("-")} - FREE_ALTHOUGH_WRITTEN
    assert {flag for flag in written if flags.owned(flag, engine) is None} == set()
    assert {name for name, _ in command.env if flags.reserved(name) is None} == set()


@pytest.mark.parametrize("engine", list(FACTS))
def test_the_facts_agree_with_the_adapters(engine: str) -> None:
    """Who is signalled at a stop, and how many ports a shard has, is said once and meant everywhere."""
    facts, adapter = FACTS[engine], ADAPTERS[engine]

    assert ("workers" in facts.stop) == adapter.terminates(1)
    assert "rank0" in facts.stop
    assert facts.start[-1] == "rank0"
    assert facts.shard_ports <= PORTS_PER_SHARD
    assert set(PROFILES) == set(FACTS) == set(ADAPTERS)


def gang(engine: str, rank: int) -> ShardSpec:
    """One rank of a replica of two nodes that uses every field."""
    profile = Profile(
        "p", engine, nodes=2, gpus_per_node=2, tensor_parallel=2, pipeline_parallel=2, data_parallel=2,
        max_model_len=4096,
    )  # fmt: skip
    peers = tuple(Peer(number, f"n{number}", "10.0.0.1", 20000) for number in range(2))
    return ShardSpec("m/abcd", "m", rank, "g", profile, parse("file:///w"), peers, ("GPU-1", "GPU-2"))


def test_no_long_name_is_remembered() -> None:
    """A name as long as its file goes with the file: four thousand of them would be gigabytes."""
    size = 1 << 18

    def look() -> None:
        for name in (letter * size for letter in "abcdefgh"):
            assert flags.owned(name, "vllm") is flags.powerful(name, "vllm") is flags.reserved(name) is None
            assert flags.whole(name, "vllm") == name

    kept, most = held_after(look)

    assert most > size
    assert kept < 2 * size
