"""How slow this machine is today: the yardstick that labs of speed print beside their figures.

The limits were set on the machine that the HTTP stack was measured on; shared machines run at a third of that in a
bad hour. What stays put is a ratio in one run: PyYAML's C loader, which none of our changes touches, reads a
catalog before and after what is measured. Its pace is printed beside the figures and moves no limit.
"""

import time

import yaml

REFERENCE = 0.19
"""Microseconds of CPU for a byte of a catalog, by PyYAML's C safe loader on that machine: 168 for a file of 880."""
ROUNDS, FILES = 5, 100

DOCUMENT = """\
# The first with the attention backend that this needs; measured on the evaluation cluster.
kind: profile
name: profile-{n}
engine: vllm
engine_version: ">=0.21"            # a comment
gpus_per_node: 4
tensor_parallel: 4
gpu: {{types: ["*H100*"], memory: 75GiB}}
gpu_memory_utilization: 0.90
max_model_len: {n}
node_labels: {{rack: a, zone: b}}
args:
  enable-prefix-caching: true
  max-num-seqs: 256
  compilation-config: '{{"level": 3}}'
env: {{OMP_NUM_THREADS: "8"}}
start_deadline: 20m
"""


def pace() -> float:
    """How many times as long this machine needs as the one that the limits are from; never below one."""
    files = [DOCUMENT.format(n=n) for n in range(FILES)]
    best = min(_read(files) for _ in range(ROUNDS))
    return round(max(1.0, best * 1e6 / sum(map(len, files)) / REFERENCE), 2)


def _read(files: list[str]) -> float:
    """CPU seconds for all of them."""
    began = time.process_time()
    for text in files:
        yaml.load(text, yaml.CSafeLoader)
    return time.process_time() - began
