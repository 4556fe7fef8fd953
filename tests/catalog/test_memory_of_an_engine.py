"""The estimate of llama.cpp against a real one: what it says it allocates, and what it takes."""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from llmgw.catalog.gguf import parse
from llmgw.catalog.gguf_facts import facts_of
from llmgw.catalog.memory import Estimate, estimate
from llmgw.catalog.model import Profile
from tests.support import engines, scripted_model

MIB = 1 << 20


def estimated(weights: pathlib.Path, length: int, slots: int, **args: str) -> Estimate:
    """The sum for so many slots of `length` tokens on CPU."""
    data = weights.read_bytes()
    named = {"parallel": slots, **{name.replace("_", "-"): value for name, value in args.items()}}
    profile = Profile("p", "llamacpp", max_model_len=length, args=tuple(named.items()))
    found = estimate(facts_of(parse(data, len(data))), profile, 1 << 30)
    assert found is not None
    return found


def measured(
    tmp_path: pathlib.Path, weights: pathlib.Path, args: Sequence[str]
) -> tuple[float, float, float]:
    """MiB of KV cache and compute buffer that a real engine logs, and its resident memory."""
    with engines.running(tmp_path, weights, args=["--device", "none", "-lv", "5", *args]) as engine:
        engine.chat("hello")
        resident = psutil.Process(engine.process.pid).memory_info().rss / MIB
        log = engine.process.said(100_000)
    kv = re.findall(r"KV buffer size = +([\d.]+) MiB", log)
    compute = re.findall(r"compute buffer size = +([\d.]+) MiB", log)
    return float(kv[-1]), float(compute[-1]), resident


@pytest.mark.parametrize(
    ("args", "of"),
    [
        (["-c", "8192", "-np", "2"], {"length": 4096, "slots": 2}),
        (
            ["-c", "32768", "-np", "1", "-ctk", "q8_0", "-ctv", "q8_0"],
            {"length": 32768, "slots": 1, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
        ),
        (["-c", "3000", "-np", "3"], {"length": 1000, "slots": 3}),
    ],
)
def test_a_real_engine_takes_what_was_estimated(
    tmp_path: pathlib.Path, args: list[str], of: dict[str, Any]
) -> None:
    """KV to the hundredth of a MiB; the compute buffer and the process are not more than was said."""
    weights = scripted_model.write(tmp_path / "model.gguf", "I am measured.")
    kv, compute, resident = measured(tmp_path, weights, args)
    found = estimated(weights, **of)
    named = {term.name: term.size / MIB for term in found.terms}
    assert found.sequence / MIB == pytest.approx(kv, abs=0.01)
    assert compute <= named["compute buffer"]
    assert resident <= sum(named.values()) + kv
    assert resident > 0.3 * (sum(named.values()) + kv)
