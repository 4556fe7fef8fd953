"""A llama of 1.5 MB that real engines load and run, and that says one sentence whatever it is asked.

Called by `tests.support.engines`, by tests that fetch weights and by the lab. The content of an
answer therefore tells which model, and so which replica, has answered.

How a real transformer is made to recite: attention and feed-forward weights are zero, so nothing
is added to the residual stream and the next token depends only on the last one. The embedding of
each word of the sentence is one basis vector of its own, everything else shares basis vector 0,
and the output matrix is a look-up table from the vector of a token to the token that follows it.
The logit of the successor is 34 above all others: the same answer at any temperature.
"""

import array
import dataclasses
import hashlib
import pathlib
import struct
from collections.abc import Iterable, Sequence

WIDTH = 128
LAYERS = 2
HEADS = 4
KV_HEADS = 2
FEED_FORWARD = 256
CERTAINTY = 3.0
"""Weight of a successor; normalisation multiplies it by √WIDTH."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Float32 values, row by row. GGUF names dimensions from the fastest: `columns`, then `rows`."""

    rows: int
    columns: int
    values: "array.array[float]"


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """The tokens of a model, and the path through them. `words` are indices into `tokens`, in order."""

    tokens: tuple[str, ...]
    words: tuple[int, ...]
    loop: bool

    @property
    def end(self) -> int:
        """The token that ends an answer."""
        return len(self.tokens) - 1


def write(path: pathlib.Path, sentence: str, *, loop: bool = False, context: int = 32768) -> pathlib.Path:
    """Write a model that answers `sentence`; with `loop`, the sentence again and again until `max_tokens`.

    Each word may occur once. Returns `path`.
    """
    script = script_of(sentence, loop=loop)
    path.write_bytes(gguf(metadata(script, path.stem, context), tensors(script)))
    return path


def cached(directory: pathlib.Path, sentence: str, *, loop: bool = False) -> pathlib.Path:
    """The model file of `sentence` in `directory`, written on the first call."""
    digest = hashlib.sha256(f"{loop}{sentence}".encode()).hexdigest()[:12]
    path = directory / f"scripted-{digest}.gguf"
    return path if path.exists() else write(path, sentence, loop=loop)


def sha256(path: pathlib.Path) -> str:
    """The digest of a file, as a catalog pins it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- vocabulary --------------------------------------------------------------------------------


def script_of(sentence: str, *, loop: bool) -> Script:
    """One token for each byte, for each word with the space behind it, and the special ones last."""
    words = [f"{word} " for word in sentence.split(" ")]
    if not loop:
        words[-1] = words[-1][:-1]
    pieces = ["".join(map(_printable, word.encode())) for word in words]
    letters = [_printable(byte) for byte in range(256)]
    if len(set(pieces)) < len(pieces) or set(pieces) & set(letters) or len(pieces) >= WIDTH:
        raise ValueError(f"cannot script {sentence!r}: fewer than {WIDTH} words, each once, none of one byte")
    words_at = tuple(range(len(letters), len(letters) + len(pieces)))
    return Script((*letters, *pieces, *SPECIAL), words_at, loop)


def _printable(byte: int) -> str:
    """How a byte-level BPE vocabulary spells `byte`: itself where it is printable, else U+0100 onwards."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in shown:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in shown].index(byte))


# --- weights -----------------------------------------------------------------------------------


def tensors(script: Script) -> dict[str, Tensor]:
    """Every tensor of a llama, by its GGUF name."""
    head = WIDTH // HEADS
    found = {
        "token_embd.weight": _embedding(script),
        "output.weight": _successors(script),
        "output_norm.weight": _ones(),
    }
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.attn_norm.weight": _ones(),
            f"blk.{layer}.attn_q.weight": _zeros(WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": _zeros(head * KV_HEADS, WIDTH),
            f"blk.{layer}.attn_v.weight": _zeros(head * KV_HEADS, WIDTH),
            f"blk.{layer}.attn_output.weight": _zeros(WIDTH, WIDTH),
            f"blk.{layer}.ffn_norm.weight": _ones(),
            f"blk.{layer}.ffn_gate.weight": _zeros(FEED_FORWARD, WIDTH),
            f"blk.{layer}.ffn_up.weight": _zeros(FEED_FORWARD, WIDTH),
            f"blk.{layer}.ffn_down.weight": _zeros(WIDTH, FEED_FORWARD),
        }
    return found


def _embedding(script: Script) -> Tensor:
    """The n-th word is basis vector n + 1; bytes and special tokens, so any prompt's end, are vector 0."""
    slots = {token: slot for slot, token in enumerate(script.words, start=1)}
    table = _zeros(len(script.tokens), WIDTH)
    for token in range(len(script.tokens)):
        table.values[token * WIDTH + slots.get(token, 0)] = 1.0
    return table


def _successors(script: Script) -> Tensor:
    """Row = the token that follows, column = the basis vector of the token before it."""
    after = (*script.words, script.words[0] if script.loop else script.end)
    table = _zeros(len(script.tokens), WIDTH)
    for slot, token in enumerate(after):
        table.values[token * WIDTH + slot] = CERTAINTY
    return table


def _zeros(rows: int, columns: int) -> Tensor:
    return Tensor(rows, columns, array.array("f", bytes(4 * rows * columns)))


def _ones() -> Tensor:
    return Tensor(1, WIDTH, array.array("f", [1.0] * WIDTH))


# --- the file ----------------------------------------------------------------------------------

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
"""Type numbers of GGUF values."""


def metadata(script: Script, name: str, context: int) -> list[bytes]:
    """The key-value pairs that llama.cpp asks of a llama with a byte-level BPE tokenizer."""
    normal, control = 1, 3
    types = [control if token in SPECIAL else normal for token in script.tokens]
    return [
        _pair("general.architecture", STRING, _string("llama")),
        _pair("general.name", STRING, _string(name)),
        _pair("general.file_type", U32, _u32(0)),  # every tensor is float32
        _pair("general.alignment", U32, _u32(ALIGNMENT)),
        _pair("llama.vocab_size", U32, _u32(len(script.tokens))),
        _pair("llama.context_length", U32, _u32(context)),
        _pair("llama.embedding_length", U32, _u32(WIDTH)),
        _pair("llama.block_count", U32, _u32(LAYERS)),
        _pair("llama.feed_forward_length", U32, _u32(FEED_FORWARD)),
        _pair("llama.attention.head_count", U32, _u32(HEADS)),
        _pair("llama.attention.head_count_kv", U32, _u32(KV_HEADS)),
        _pair("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        _pair("llama.rope.dimension_count", U32, _u32(WIDTH // HEADS)),
        _pair("tokenizer.ggml.model", STRING, _string("gpt2")),
        _pair("tokenizer.ggml.pre", STRING, _string("gpt-2")),
        _pair("tokenizer.ggml.tokens", ARRAY, _array(STRING, map(_string, script.tokens))),
        _pair("tokenizer.ggml.token_type", ARRAY, _array(I32, (struct.pack("<i", kind) for kind in types))),
        # A BPE tokenizer needs one merge to load; this one is of two NUL bytes and never happens.
        _pair("tokenizer.ggml.merges", ARRAY, _array(STRING, [_string("Ā Ā")])),
        _pair("tokenizer.ggml.bos_token_id", U32, _u32(script.end - 2)),
        _pair("tokenizer.ggml.eos_token_id", U32, _u32(script.end)),
        _pair("tokenizer.ggml.add_bos_token", BOOL, struct.pack("<?", False)),
        _pair("tokenizer.chat_template", STRING, _string(CHAT_TEMPLATE)),
    ]


def gguf(pairs: Sequence[bytes], named: dict[str, Tensor]) -> bytes:
    """A GGUF v3 file: magic, version, counts, metadata, tensor directory, then the aligned tensors."""
    directory, bodies, offset = [], [], 0
    for name, tensor in named.items():
        body = _aligned(tensor.values.tobytes())
        directory.append(_entry(name, tensor, offset))
        bodies.append(body)
        offset += len(body)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(named), len(pairs))
    return _aligned(head + b"".join(pairs) + b"".join(directory)) + b"".join(bodies)


def _entry(name: str, tensor: Tensor, offset: int) -> bytes:
    """Name, dimensions (a vector has one), type 0 = float32, offset from the first tensor."""
    dimensions = (tensor.columns,) if tensor.rows == 1 else (tensor.columns, tensor.rows)
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return _string(name) + sizes + struct.pack("<IQ", 0, offset)


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _string(key) + _u32(kind) + value


def _array(kind: int, items: Iterable[bytes]) -> bytes:
    packed = list(items)
    return struct.pack("<IQ", kind, len(packed)) + b"".join(packed)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _u32(value: int) -> bytes:
    return struct.pack("<I", value)


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
