"""What llmgw knows of each engine before it runs one, as data.

`checks` refuses arguments with it, `arithmetic` multiplies with it; `planning` orders ranks and
counts ports by it; `engines` builds the command lines that own the flags listed here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

Role = Literal["rank0", "workers"]


@dataclasses.dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine.

    `owned` flags are written by llmgw, each with the field or the reason that stands for it.
    `power` flags run code or open files that the catalog's reader does not see.
    `heard` flags are free, and llmgw goes by their values: each name and short form → the name.
    `exact` flags are free although an owned one begins with them. `abbreviates`: the engine
    accepts any unique beginning of a flag. `world` are the degrees whose product is the number of
    GPUs (none: no such rule); `wider` are heard flags that multiply them too. `apart` is the degree
    whose groups no node boundary may cut: nodes share them evenly, or a group has whole nodes.
    `start` and `stop` are the order of the ranks; a role that is not
    in `stop` is never signalled by itself. `shard_ports` are the consecutive ports one shard opens,
    from its HTTP port on. `unstaged` are model classes that it cannot cut into pipeline stages.
    """

    name: str
    owned: Mapping[str, str]
    power: frozenset[str]
    heard: Mapping[str, str]
    exact: frozenset[str] = frozenset()
    abbreviates: bool = True
    world: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()
    apart: str = ""
    start: tuple[Role, ...] = ("workers", "rank0")
    stop: tuple[Role, ...] = ("rank0", "workers")
    shard_ports: int = 1
    unstaged: frozenset[str] = frozenset()


def _owned(**fields: str) -> dict[str, str]:
    """Flags by the catalog field that sets them, turned to flag → field."""
    return {flag: field for field, flags in fields.items() for flag in flags.split()}


def _heard(*flags: str) -> dict[str, str]:
    """Each flag with its short forms (`name short …`), turned to spelling → name."""
    return {spelled: flag.split()[0] for flag in flags for spelled in flag.split()}


_PLACED = "llmgw gives each shard its own"
_ADDRESS = dict.fromkeys(["host", "port", "uds"], _PLACED)
_KEYS = dict.fromkeys(
    ["api-key", "api-key-file", "admin-api-key", "ssl-keyfile", "ssl-certfile"], "a key is no catalog text"
)

VLLM = EngineFacts(
    name="vllm",
    owned={
        **_ADDRESS,
        **_KEYS,
        **_owned(
            source="model model-tag tokenizer-revision revision code-revision download-dir",
            name="served-model-name",
            nodes="nnodes n node-rank r master-addr master-port headless",
            tensor_parallel="tensor-parallel-size tp",
            pipeline_parallel="pipeline-parallel-size pp",
            data_parallel=(
                "data-parallel-size dp data-parallel-size-local dpl data-parallel-rank dpn data-parallel-start-rank dpr "
                "data-parallel-address dpa data-parallel-rpc-port dpp data-parallel-backend dpb "
                "data-parallel-hybrid-lb dph data-parallel-external-lb dpe data-parallel-multi-port-external-lb"
            ),
            distributed="distributed-executor-backend",
            max_model_len="max-model-len",
            gpu_memory_utilization="gpu-memory-utilization",
            drain="shutdown-timeout",
        ),
        "config": "it would set flags that nobody sees here",
        "api-server-count": "readiness and drain count on one server",
        "asc": "readiness and drain count on one server",
        "root-path": "the gateway asks below /v1",
    },
    power=frozenset(
        {
            "trust-remote-code", "middleware", "tool-parser-plugin", "reasoning-parser-plugin", "logits-processors",
            "worker-cls", "worker-extension-cls", "allowed-local-media-path", "enable-log-requests",
            "enable-log-outputs", "ssl-ca-certs", "otlp-traces-endpoint", "collect-detailed-traces",
            "hf-config-path", "model-loader-extra-config", "kv-transfer-config",
        }
    ),
    heard=_heard(
        "convert", "cpu-offload-gb", "decode-context-parallel-size dcp", "dtype", "enable-expert-parallel ep",
        "enforce-eager", "hf-overrides", "kv-cache-dtype", "kv-cache-memory-bytes", "max-num-batched-tokens",
        "max-num-seqs", "prefill-context-parallel-size pcp", "quantization q", "rope-scaling", "runner", "task",
    ),
    exact=frozenset({"tokenizer"}),
    world=("tensor_parallel", "pipeline_parallel", "data_parallel"),
    wider=("prefill-context-parallel-size",),
    apart="data_parallel",
    # None declares the interface SupportsPP in vllm/model_executor/models, and each has an empty column PP in
    # docs/models/supported_models.md at 0046f770 (after 0.33). The empty column alone is no proof: that of
    # HCXVisionForCausalLM, which is staged, is empty too. Whisper's source (00a23257) says nothing of stages:
    # it makes its layers as staged classes do, but its forward takes nothing from an earlier stage.
    unstaged=frozenset(
        {
            "AriaForConditionalGeneration", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration",
            "IQuestLoopCoderForCausalLM", "PaddleOCRVLForConditionalGeneration", "WhisperForConditionalGeneration",
            "Zamba2ForCausalLM",
        }
    ),
)  # fmt: skip

SGLANG = EngineFacts(
    name="sglang",
    owned={
        **_ADDRESS,
        **_KEYS,
        **_owned(
            source="model-path model tokenizer-path revision download-dir",
            name="served-model-name",
            nodes="nnodes node-rank dist-init-addr nccl-init-addr nccl-port gated-launch-port",
            tensor_parallel="tp-size tensor-parallel-size tp",
            pipeline_parallel="pp-size pipeline-parallel-size pp",
            data_parallel="dp-size data-parallel-size dp attn-dp-size enable-dp-attention",
            max_model_len="context-length",
            gpu_memory_utilization="mem-fraction-static",
            gpus_per_node="device",
        ),
        "config": "it would set flags that nobody sees here",
        "enable-metrics": "llmgw reads the metrics, so it turns them on",
        "enable-http2": "the gateway speaks HTTP/1.1 to engines",
        "base-gpu-id": _PLACED,
        "gpu-id-step": _PLACED,
    },
    power=frozenset(
        {
            "trust-remote-code", "enable-custom-logit-processor", "custom-weight-loader", "log-requests",
            "log-requests-level", "crash-dump-folder", "remote-instance-weight-loader-seed-instance-ip",
            "file-storage-path", "custom-sigquit-handler", "forward-hooks",
        }
    ),
    heard=_heard(
        "cpu-offload-gb", "dtype", "ep-size ep expert-parallel-size", "is-embedding", "json-model-override-args",
        "kv-cache-dtype", "moe-dp-size", "quantization",
    ),
    world=("tensor_parallel", "pipeline_parallel"),
    apart="pipeline_parallel",
    stop=("rank0",),
    shard_ports=9,
)  # fmt: skip

LLAMACPP = EngineFacts(
    name="llamacpp",
    owned={
        **_ADDRESS,
        **_KEYS,
        **_owned(
            source=(
                "model m model-url mu hf-repo hf hfr hf-file hff hf-token hft docker-repo dr offline "
                "models-dir models-preset models-max models-autoload"
            ),
            name="alias a",
            nodes="rpc",
            max_model_len="ctx-size c fit-ctx fitc",
            gpu="device dev",
            parallel="np",
        ),
        "metrics": "llmgw reads the metrics, so it turns them on",
        "slots": "it shows prompts, so llmgw turns it off",
        "ui": "llmgw turns it off: people talk to the gateway",
        "webui": "llmgw turns it off: people talk to the gateway",
        "api-prefix": "the gateway asks below /v1",
        "log-disable": "llmgw reads the log",
        "reuse-port": "two engines on one port would share each other's requests",
        "ssl-key-file": "a key is no catalog text",
        "ssl-cert-file": "a key is no catalog text",
        "sleep-idle-seconds": "an engine that unloads by itself is no ready replica",
        "version": "it would print and exit",
        "help": "it would print and exit",
        "h": "it would print and exit",
        "usage": "it would print and exit",
        "cache-list": "it would print and exit",
        "cl": "it would print and exit",
        "list-devices": "it would print and exit",
        "completion-bash": "it would print and exit",
    },
    power=frozenset(
        {
            "tools", "tools-runtime", "mcp-servers-config", "mcp-servers-json", "agent", "ag", "ui-mcp-proxy",
            "webui-mcp-proxy", "path", "props", "media-path", "slot-save-path", "log-prompts-dir", "log-file",
            "ui-config-file", "webui-config-file", "grammar-file", "json-schema-file", "jf", "chat-template-file",
            "lookup-cache-static", "lcs", "lookup-cache-dynamic", "lcd", "mmproj-url", "mmu", "cors-origins",
            "hf-repo-draft", "hfd", "hfrd", "spec-draft-hf", "verbose", "v", "log-verbose", "verbosity", "lv",
            "log-verbosity",
        }
    ),
    heard=_heard(
        "cache-ram cram", "cache-type-k ctk", "cache-type-v ctv", "embedding embeddings", "parallel", "rope-scaling",
        "swa-full", "ubatch-size ub",
    ),
    abbreviates=False,
)  # fmt: skip

FACTS: Mapping[str, EngineFacts] = {facts.name: facts for facts in (VLLM, SGLANG, LLAMACPP)}

_LOADS = (
    # the loader, the C library, TLS
    "LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "*_PRELOAD*", "*_SO_PATH", "OPENSSL_CONF*", "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    # Python, shells, and what is named for them to import
    "PYTHON*", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "*LOGGING_CONFIG*", "*_PLUGIN*",
    "*_HOOK", "*_HOOKS", "SGLANG_EXTERNAL_*_PACKAGE", "COVERAGE_PROCESS_*",
    # drivers, their layers and tools, networks
    "CUDA_INJECTION*", "NVTX_INJECTION*", "OMP_TOOL_LIBRARIES", "HSA_TOOLS_*", "ROCP_TOOL_*", "GGML_BACKEND_PATH",
    "VK_*", "OCL_ICD_*", "OPENCL_*", "ZE_ENABLE_ALT_DRIVERS", "NCCL_CONF_FILE", "UCX_MODULE*", "FI_PROVIDER_PATH",
    "IBV_DRIVERS", "RDMAV_DRIVERS", "OMPI_MCA_*component_path",
    # kernels that are made while it runs
    "TRITON_LIB*_PATH", "TRITON_CACHE_MANAGER", "TRITON_REMOTE_CACHE_BACKEND", "TRITON_OVERRIDE_DIR",
    "TORCHINDUCTOR_CUTLASS_DIR", "LIBRARY_PATH", "*_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "*_CFLAGS", "*_CXXFLAGS", "*_CUDAFLAGS", "*_LDFLAGS",
)  # fmt: skip
_RUNS = (
    "CC", "CXX", "CPP", "LD", "AR", "NVCC", "*_NVCC", "*NVCC_COMPILER", "NVCC_*_FLAGS", "NVCC_CCBIN", "CUDACXX",
    "CUDAHOSTCXX", "HIPCXX", "HIPCC*", "HIP_CLANG_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCACHE_COMPILER",
    "CCACHE_PREFIX*", "TRITON_*PTXAS*_PATH", "TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH", "GIT_SSH*", "GIT_CONFIG*",
    "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "*_ASKPASS", "PAGER", "*_PAGER", "EDITOR", "*_EDITOR",
)  # fmt: skip

RESERVED_ENV: Mapping[str, str] = {
    **dict.fromkeys(_LOADS, "it loads code into the engine"),
    **dict.fromkeys(_RUNS, "it names a program that the engine would run"),
    "PATH": "the agent finds binaries by its own",
    "HOME": "the agent sets it",
    "LLMGW_*": "by these the agent knows its own processes",
    "LLAMA_ARG_*": "it is a flag in disguise: write it under args",
    "*_VISIBLE_DEVICES": "placement chooses the GPUs",
    "CUDA_DEVICE_ORDER": "placement chooses the GPUs",
    "HF_HUB_OFFLINE": "engines never fetch: the agent does",
    "TRANSFORMERS_OFFLINE": "engines never fetch: the agent does",
    "HF_ENDPOINT": "engines never fetch: the agent does",
    "VLLM_HOST_IP": "llmgw gives each shard its own",
    "VLLM_PORT": "llmgw gives each shard its own",
    "VLLM_DP_*": "data_parallel stands for it",
    "VLLM_NO_USAGE_STATS": "engines report to nobody",
    "VLLM_SERVER_DEV_MODE": "it opens endpoints that stop the engine",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "it lets clients load files",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "it runs code from the network",
    "VLLM_RPC_BASE_PATH": "llmgw gives each shard its own",
    "SGLANG_HOST_IP": "llmgw gives each shard its own",
    "SGLANG_PORT": "llmgw gives each shard its own",
    "SGL_FORCE_SHUTDOWN": "drain is llmgw's",
    "SGLANG_FORCE_SHUTDOWN": "drain is llmgw's",
    "HOST_IP": "llmgw gives each shard its own",
    "RAY_ADDRESS": "llmgw gives each shard its own",
    "MASTER_ADDR": "llmgw gives each shard its own",
    "MASTER_PORT": "llmgw gives each shard its own",
    "RANK": "llmgw gives each shard its own",
    "LOCAL_RANK": "llmgw gives each shard its own",
    "WORLD_SIZE": "llmgw gives each shard its own",
}
"""Environment variables, as shell patterns, that a profile may not set, and why."""

SECRET_ENV = (
    "TOKEN",
    "*_TOKEN",
    "*API_KEY",
    "*APIKEY",
    "SECRET",
    "*_SECRET",
    "*SECRET_*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*PRIVATE_KEY*",
    "*_ACCESS_KEY*",
    "*CREDENTIALS*",
    "*AUTHORIZATION*",
    "*BEARER*",
    "*_JWT",
)
"""Names that hold secrets: a catalog is read by everybody who can read the repository."""
UNLESS_SWITCHED = ("KEY", "*_KEY", "PASS", "*_PASS", "PAT", "*_PAT")
"""Names that hold secrets too, unless their value only turns something on or off."""
