"""What checking a catalog costs, beside what other loaders take to read it: `python -m tests.lab bench-catalog`.

Each size is measured in a process of its own, on files on disk, in CPU seconds: everything read and
checked, again unchanged, again with one file edited. Then control planes follow the largest, by files and by
commits, and one file is edited after the other: how long until there is a new catalog. The loaders read the same bytes in the same run;
they find no positions, check nothing, and two of them take so long that they read a part of the files. The pace of
this machine is printed beside.
"""

import argparse
import io
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from ruamel.yaml import YAML

from llmgw.catalog.load import Cache, snapshot
from tests.lab.command import Outcome
from tests.support.followed_plane import git
from tests.support.pace import pace

SIZES = (1_000, 3_000, 10_000)
LIMITS = {"first": 2.0, "unchanged": 0.5, "edited": 0.1, "mib": 400.0}
"""CPU seconds for 10,000 documents, and the most memory that the process may take."""
FOLLOWED = 100.0
"""Milliseconds from a look to the new catalog in a running control plane, for one edited file of 10,000."""
EDITS = 7
LINEAR = 1.5
"""How much more a document may cost among 10,000 than among 1,000."""
PART = 500

MODEL = """\
# yaml-language-server: $schema=../../schemas/catalog.schema.json
# Number {n}. Whoever changes this file asks the team that its directory is named after; the model card, the
# evaluation and the reasons for the revision below are linked from the page of the team.
kind: model
name: model-{n}
source: hf://example-organisation/Model-{n}-70B-Instruct@{n:07x}abcdef0123456789   # a commit
profiles: [profile-{n}, profile-{next}]     # in order of preference: the first that fits somewhere
aliases: [alias-{n}, chat-{n}]
fallbacks:
  - model-{before}
  - alias-{before}
scaling:
  min: 1
  max: 4
  target_in_flight: 16
protect: true
"""
PROFILE = """\
# yaml-language-server: $schema=../../schemas/catalog.schema.json
# How model {n} runs: four cards of one machine. The numbers were measured on the evaluation cluster.
kind: profile
name: profile-{n}
engine: vllm
engine_version: ">=0.21"            # the first with the attention backend that this needs
nodes: 1
gpus_per_node: 4
tensor_parallel: 4
pipeline_parallel: 1
distributed: mp
gpu: {{types: ["*H100*"], memory: 75GiB}}
gpu_memory_utilization: 0.90
max_model_len: {length}
node_labels: {{rack: a, zone: b}}
args:
  enable-prefix-caching: true
  max-num-seqs: 256
  kv-cache-dtype: fp8
  compilation-config: '{{"level": 3}}'
env:
  VLLM_LOGGING_LEVEL: WARNING
  OMP_NUM_THREADS: "8"
start_deadline: 20m
drain: 2m
"""


def documents(count: int) -> Iterator[tuple[str, str]]:
    """`count` documents of about 800 bytes that are valid together, by file name."""
    half = count // 2
    for n in range(half):
        before, team = n - 1 if n % 50 else half, n % 50
        model = MODEL.format(n=n, next=(n + 1) % half, before=before)
        if n % 5:
            model = model.replace(f"  - alias-{before}\n", "")
        if before == half:  # the last of each row of fallbacks
            model = model[: model.index("fallbacks:")] + model[model.index("scaling:") :]
        yield f"team-{team}/model-{n}.yaml", model
        yield f"profiles/profile-{n}.yaml", PROFILE.format(n=n, length=1024 * (1 + n % 64))


def write(directory: pathlib.Path, count: int) -> None:
    """The documents as files below `directory`."""
    for name, text in documents(count):
        path = directory / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)


def measured(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def ours(directory: pathlib.Path) -> Mapping[str, float]:
    """Reading and checking, again, and again after an edit. For a process of its own: memory is its peak."""
    cache = Cache()

    def check() -> None:
        files, unreadable = snapshot(directory)
        checked = cache.check(files, unreadable)
        assert checked.catalog is not None, checked.diagnostics[:3]
        assert not checked.diagnostics

    first = measured(check)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    unchanged = min(measured(check) for _ in range(3))
    files, _ = snapshot(directory)
    name = next(iter(files))
    edits = [{**files, name: files[name] + b"#" * number} for number in range(1, 4)]
    edited = min(measured(lambda edit=edit: cache.check(edit)) for edit in edits)  # type: ignore[misc]
    return {"first": first, "unchanged": unchanged, "edited": edited, "mib": mib}


def loaders(files: Sequence[bytes]) -> Mapping[str, float]:
    """CPU seconds a document of other loaders, on the same bytes."""
    part = files[:PART]
    safe, round_trip = YAML(typ="safe"), YAML()
    return {
        "pyyaml C safe": measured(lambda: [yaml.load(data, yaml.CSafeLoader) for data in files]) / len(files),
        "ruamel safe": measured(lambda: [safe.load(io.BytesIO(data)) for data in part]) / len(part),
        "ruamel round-trip": measured(lambda: [round_trip.load(io.BytesIO(data)) for data in part]) / len(part),
    }  # fmt: skip


def _in_own_process(directory: pathlib.Path) -> Mapping[str, float]:
    command = [sys.executable, "-m", "tests.lab.bench_catalog", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Mapping[str, float] = json.loads(done.stdout)
    return found


def followed(directory: pathlib.Path, watch: str) -> Mapping[str, float]:
    """Milliseconds of the median edit, in a control plane of its own that follows a catalog of its own."""
    write(directory / "catalog", SIZES[-1])
    if watch == "commits":
        for arguments in (
            ("init", "--quiet", "--initial-branch=main", "."),
            ("add", "."),
            ("commit", "-qm", "one"),
        ):
            git(directory, *arguments)
    command = [sys.executable, "-m", "tests.support.followed_plane", watch, str(directory), str(EDITS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Mapping[str, float] = json.loads(done.stdout)
    return found


def run(argv: Sequence[str]) -> Outcome:
    """Measure all sizes, then the other loaders."""
    parser = argparse.ArgumentParser(prog="bench-catalog", description=__doc__)
    parser.add_argument("--repeat", type=int, default=2, help="processes a size; the best counts")
    options = parser.parse_args(argv)
    figures: dict[str, Any] = {}
    before = pace()
    with tempfile.TemporaryDirectory() as directory:
        for count in SIZES:
            root = pathlib.Path(directory) / str(count)
            root.mkdir()
            write(root, count)
            runs = [_in_own_process(root) for _ in range(options.repeat)]
            figures[str(count)] = {name: round(min(one[name] for one in runs), 3) for name in LIMITS}
        files = list(snapshot(root)[0].values())
        figures["ms in a control plane"] = {
            watch: followed(pathlib.Path(directory) / watch, watch) for watch in ("files", "commits")
        }
    figures["pace"] = round((before + pace()) / 2, 2)
    others = loaders(files)
    figures["bytes a document"] = sum(map(len, files)) // len(files)
    figures["us a document"] = {
        "llmgw, read and checked": round(figures["10000"]["first"] * 100),
        **{name: round(seconds * 1e6) for name, seconds in others.items()},
    }
    return Outcome(not missed(figures), {"documents": len(files)}, figures, "; ".join(missed(figures)))


def missed(figures: Mapping[str, Any]) -> list[str]:
    """The limits that were not kept."""
    most, least = figures[str(SIZES[-1])], figures[str(SIZES[0])]
    found = [
        f"{name}: {most[name]} is more than {limit:g}" for name, limit in LIMITS.items() if most[name] > limit
    ]
    for watch, times in figures["ms in a control plane"].items():
        if times["look to catalog"] > FOLLOWED:
            found.append(f"followed by {watch}: {times['look to catalog']} ms are more than {FOLLOWED:g}")
    growth = most["first"] / least["first"] / (SIZES[-1] / SIZES[0])
    return [*found, *([f"a document costs {growth:.2f} times as much"] if growth > LINEAR else [])]


if __name__ == "__main__":
    print(json.dumps(ours(pathlib.Path(sys.argv[1]))))
