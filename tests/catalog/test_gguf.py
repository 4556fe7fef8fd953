"""GGUF headers: what llama.cpp writes is read, what somebody forged is refused without being believed."""

import pathlib
import struct
import time
import tracemalloc
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.catalog.facts import Unusable
from llmgw.catalog.gguf import (
    LARGEST,
    MOST_ITEMS,
    MOST_KEYS,
    MOST_TENSORS,
    Header,
    More,
    parse,
)
from llmgw.catalog.gguf_facts import facts_of
from tests.support import scripted_model

U32, F32, TEXT, LIST = 4, 6, 8, 9


def text(value: str) -> bytes:
    """A text as the format has it."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, value: object) -> bytes:
    """A key with a number, a text, or a list of either."""
    match value:
        case int():
            return text(key) + struct.pack("<II", U32, value)
        case float():
            return text(key) + struct.pack("<If", F32, value)
        case str():
            return text(key) + struct.pack("<I", TEXT) + text(value)
        case [str(), *_]:
            return text(key) + struct.pack("<IIQ", LIST, TEXT, len(value)) + b"".join(map(text, value))
        case [*numbers]:
            return text(key) + struct.pack(f"<IIQ{len(numbers)}I", LIST, U32, len(numbers), *numbers)
        case _:
            raise TypeError(value)


def tensor(name: str, shape: Iterable[int], kind: int = 0, offset: int = 0) -> bytes:
    """One line of the tensor table."""
    sizes = list(shape)
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def gguf(
    metadata: Mapping[str, object],
    tensors: Iterable[bytes] = (),
    *,
    version: int = 3,
    keys: int = -1,
    count: int = -1,
) -> bytes:
    """A header; `keys` and `count` may lie."""
    lines, pairs = list(tensors), [pair(*item) for item in metadata.items()]
    counts = (count if count >= 0 else len(lines), keys if keys >= 0 else len(pairs))
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(lines)


LLAMA: dict[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.context_length": 131072,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.tokens": [f"t{number}" for number in range(100)],
    "tokenizer.chat_template": "x" * 5000,
}


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(version: int) -> None:
    """Numbers, texts, lists and tensors come out as they went in."""
    header = parse(gguf(LLAMA, [tensor("token_embd.weight", (4096, 100), 8)], version=version))
    assert header.version == version
    assert header.metadata["llama.block_count"] == 32
    assert header.metadata["llama.rope.freq_base"] == 500000.0
    assert header.lengths["tokenizer.ggml.tokens"] == 100
    assert "tokenizer.chat_template" not in header.metadata
    assert header.tensors["token_embd.weight"].size == 4096 * 100 * 34 // 32


def test_facts_of_a_header() -> None:
    """The same numbers as in config.json, under llama.cpp's names."""
    facts = facts_of(parse(gguf(LLAMA, [tensor("output.weight", (4096, 100))])))
    assert (facts.layers, facts.hidden, facts.heads, facts.kv_heads, facts.head_size) == (
        32,
        4096,
        32,
        8,
        128,
    )
    assert (facts.vocabulary, facts.dense, facts.longest, facts.full) == (100, 14336, 131072, 32)
    assert not facts.tied
    assert facts.weights is not None
    assert facts.weights.head == facts.weights.total == 4096 * 100 * 4


def test_layers_without_kv_heads_keep_nothing() -> None:
    """A list of KV heads says layer by layer which ones do."""
    facts = facts_of(parse(gguf({**LLAMA, "llama.attention.head_count_kv": [0, 2, 0, 4] * 8})))
    assert (facts.full, facts.kv_heads) == (16, 4)


@pytest.mark.parametrize(
    ("architecture", "more", "full", "windowed"),
    [
        ("gemma3", {"attention.sliding_window": 1024}, 5, 27),
        ("gpt-oss", {"attention.sliding_window": 128}, 16, 16),
        (
            "gpt-oss",
            {"attention.sliding_window": 128, "attention.sliding_window_pattern": [1, 1, 1, 0] * 8},
            8,
            24,
        ),
        ("qwen3next", {"full_attention_interval": 4, "ssm.inner_size": 4096, "ssm.state_size": 128}, 8, 0),
        ("llama", {"attention.sliding_window": 4096}, 32, 0),
    ],
)
def test_layers_by_what_they_keep(
    architecture: str, more: dict[str, object], full: int, windowed: int
) -> None:
    """Windows count where llama.cpp runs them, states where they are."""
    of = {"general.architecture": architecture, f"{architecture}.block_count": 32}
    facts = facts_of(parse(gguf({**of, **{f"{architecture}.{name}": value for name, value in more.items()}})))
    assert (facts.full, facts.windowed) == (full, windowed)


def test_a_real_engine_reads_what_we_read(tmp_path: pathlib.Path) -> None:
    """The scripted model of the tests, which llama-server loads, has the numbers it was made with."""
    data = scripted_model.write(tmp_path / "model.gguf", "I am read.").read_bytes()
    facts = facts_of(parse(data, len(data)))
    assert facts.weights is not None
    assert len(data) * 0.9 < facts.weights.total < len(data)
    assert (facts.layers, facts.hidden, facts.heads, facts.kv_heads) == (2, 128, 4, 2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (gguf({}, version=1), "version 1"),
        (gguf({}, version=3 << 24), "big-endian"),
        (gguf({}, keys=MOST_KEYS + 1), "keys"),
        (gguf({}, count=MOST_TENSORS + 1), "tensors"),
        (gguf({}, keys=2**64 - 1), "keys"),
        (gguf({}, keys=1) + struct.pack("<Q", 2**63), "bytes of a text"),
        (gguf({}, keys=1) + text("a") + struct.pack("<IIQ", LIST, TEXT, MOST_ITEMS + 1), "items"),
        (gguf({}, keys=1) + text("a") + struct.pack("<IIQ", LIST, LIST, 1), "type 9"),
        (gguf({}, keys=1) + text("a") + struct.pack("<I", 77), "type 77"),
        (gguf({}, keys=1) + text("k" * 5000), "a name"),
        (gguf({}, [tensor("t", [2**40, 2**40])]), "larger than any file"),
        (gguf({}, [tensor("t", [1] * 9)]), "dimensions"),
        (gguf({}, [tensor("t", [4], kind=999)]), "type 999"),
    ],
)
def test_forged_headers_are_refused(data: bytes, said: str) -> None:
    """A count that no model has is refused before anything is made of it."""
    with pytest.raises(Unusable, match=said):
        parse(data)


def test_a_file_that_was_cut_short_is_refused() -> None:
    """A tensor that ends beyond the file is what an aborted download leaves."""
    data = gguf(LLAMA, [tensor("t", [1024])])
    with pytest.raises(Unusable, match="cut short"):
        parse(data, size=len(data) + 4095)
    with pytest.raises(Unusable, match="cut short"):
        parse(data[:200], size=200)
    assert parse(data, size=len(data) + 4096).tensors["t"].size == 4096


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_a_header_that_is_not_whole_asks_for_more(cut: int) -> None:
    """Any prefix asks for bytes that it does not have; none is taken for a header."""
    data = gguf(LLAMA, [tensor("t", [1024])])
    with pytest.raises(More) as more:
        parse(data[:cut])
    assert cut < more.value.need <= len(data)


def test_no_header_is_longer_than_the_limit() -> None:
    """A header that never ends is given up at a bound, in time and in memory."""
    forged = gguf({}, keys=MOST_KEYS) + (text("k") + struct.pack("<I", TEXT) + text("v" * 4096)) * 100
    forged += (text("k") + struct.pack("<I", TEXT) + text("v" * 4096)) * (LARGEST // 4100)
    tracemalloc.start()
    began = time.thread_time()  # a bound on work, not a decision
    with pytest.raises(Unusable, match="longer than"):
        parse(forged)
    assert time.thread_time() - began < 2
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 600))
def test_no_bytes_raise_anything_else(noise: bytes, at: int) -> None:
    """Whatever is written over a header: it is read, refused, or asks for more."""
    data = gguf(LLAMA, [tensor("t", [32])])
    forged = data[:at] + noise + data[at + len(noise) :]
    try:
        header: Header = parse(forged, len(forged))
        facts_of(header)
    except (Unusable, More):
        pass
