"""What the words of a failure say about where to try next.

`engines` puts the telling line of a log into a failure's reason; `planning.troubles` reads it here.
"""

import re

_MEMORY = re.compile(
    r"out of memory|OutOfMemory|free memory on device|leave no GPU memory|no available memory for the cache|cudaMalloc failed"
    r"|(?:unable|failed) to allocate \w*(?:CUDA|ROCm|Vulkan|SYCL|device)|ALLOC_FAILED|not enough memory"
    r"|memory is (?:not sufficient|insufficient)",
    re.IGNORECASE,
)

_FETCH = re.compile(r"(?:rank \d+: )?cannot fetch ")


def ran_out_of_memory(reason: str) -> bool:
    """Whether an engine says that its cards had too little memory. A kill by the kernel says nothing of cards."""
    return _MEMORY.search(reason) is not None


def could_not_fetch(reason: str) -> bool:
    """Whether no engine was run at all: its weights could not be had."""
    return _FETCH.match(reason) is not None
