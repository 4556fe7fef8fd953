"""The outermost level of an object, found in small steps."""

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from llmgw.gateway import outline
from llmgw.gateway.outline import Malformed, members, to_end

texts = st.text(alphabet='ab"\\\\{}[],:é\n', max_size=9)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@hypothesis.given(
    st.dictionaries(texts, values, max_size=5),
    st.integers(2, 40),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_members_are_found_wherever_a_chunk_ends(
    document: dict[str, Any], chunk: int, indent: int | str | None, ascii_only: bool
) -> None:
    """Strings, escapes and brackets cut in two by a chunk's end are still what they are."""
    raw = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "CHUNK", chunk)
        found = to_end(members(raw))
    read = [(json.loads(raw[slice(*m.key)]), json.loads(raw[slice(*m.value)])) for m in found]
    assert read == list(document.items())


@hypothesis.given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\\\a1 ', max_size=30).map(str.encode))
def test_whatever_bytes_come_it_ends(rest: bytes) -> None:
    """Members, or Malformed: never another exception, never a loop without an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "CHUNK", 4)
        try:
            to_end(members(b"{" + rest))
        except Malformed:
            return
    assert rest


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"{}x", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b'{"a":"x}', b'{"a":[1}',
        b'{a:1}', b'{"a":nul}', b'{"a":[\\"]"', b'{"a":"\\', b'{"a":["\\',
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    """One reason each."""
    with pytest.raises(Malformed):
        to_end(members(raw))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a":' + b"[" * 2000, "nested more than 1024 deep"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(2000)) + b"}", "more than 1024 keys"),
    ],
)
def test_depth_and_keys_are_bounded(raw: bytes, said: str) -> None:
    """Nobody needs more, and an engine's own parser may not survive it."""
    with pytest.raises(Malformed, match=said):
        to_end(members(raw))
