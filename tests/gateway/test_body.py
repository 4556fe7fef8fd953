"""The model in a body, and nothing else of it."""

import json

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from llmgw.gateway.body import AT_ONCE, NotReadable, read, reading
from llmgw.gateway.outline import CHUNK

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8) | st.just("model"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=12,
)


@hypothesis.given(
    st.dictionaries(st.text(max_size=6), values, max_size=4),
    st.dictionaries(st.text(max_size=6), values, max_size=4),
    st.text(min_size=1, max_size=8),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_only_the_name_changes(
    before: dict[str, object], after: dict[str, object], name: str, indent: int | str | None, ascii_only: bool
) -> None:
    """Whatever stands around it, in whatever layout: the document is the same but for `model`."""
    before.pop("model", None)
    after.pop("model", None)
    document = {**before, "model": name, **after}
    raw = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return
    renamed = b"".join(read(raw).asking('q"é'))
    assert orjson.loads(renamed) == {**orjson.loads(raw), "model": 'q"é'}
    assert len(renamed) - len(raw) == len(orjson.dumps('q"é')) - len(
        json.dumps(name, ensure_ascii=ascii_only).encode()
    )


def test_a_body_that_asks_for_its_own_model_is_not_touched() -> None:
    """Not parsed, not copied."""
    body = read(b'{"model":"a"}')
    assert body.asking("a")[0] is body.raw


def test_an_escaped_key_is_the_same_key() -> None:
    """As every JSON reader has it."""
    assert b"".join(read(b'{"m\\u006fdel":"a"}').asking("b")) == b'{"m\\u006fdel":"b"}'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b'{"model":""}',
        b'{"model":["a"]}',
        b"\xff",
        b'{"model":"a"} x',
        b'{"metadata":{"model":"a"},"messages":[]}',
        b'{"x":["model"],"y":{"model" :"a"}}',
        b'{"x":"model","y":"a"}',
    ],
)
def test_what_names_no_model_is_not_readable(raw: bytes) -> None:
    """One reason each, and never another exception."""
    with pytest.raises(NotReadable):
        read(raw)


@pytest.mark.parametrize("padding", [b"", b" " * AT_ONCE])
@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"a","model":"b"%b}',
        b'{"model":"a","\\u006dodel":"b"%b}',
        b'{"\\u006D\\u006F\\u0064\\u0065\\u006C":"a","model":"b"%b}',
        b'{"\\u006dodel":"a","mo\\u0064el":"b"%b}',
        b'{"x":[{"model":"c"}],"model":"a","y":"\\"model\\"","mode\\u006c":"b"%b}',
    ],
)
def test_a_model_that_is_there_twice_is_none(raw: bytes, padding: bytes) -> None:
    """However its key is spelled: an engine may take the other one."""
    with pytest.raises(NotReadable, match="more than once"):
        read(raw % padding)


@pytest.mark.parametrize(
    "rest",
    [
        b'"x":{"model":["b",%b"c"]}' % (b"[]," * CHUNK),
        b'"x":"\\"model\\":\\"b\\"%b"' % (b'\\"' * 3 * CHUNK),
        b'"x":["model",%b"model"]' % (b'"]",' * 2 * CHUNK),
        b'%b"x":1' % (b" " * AT_ONCE),
    ],
)
def test_a_large_body_is_read_in_small_steps(rest: bytes) -> None:
    """No step looks at more than a chunk, whatever the body is made of, and the right model is found."""
    raw = b'{"model":"a",%b}' % rest
    assert sum(1 for _ in reading(raw)) >= (len(raw) - len(b'{"model":"a",')) // CHUNK - 1
    assert b"".join(read(raw).asking("b")) == b'{"model":"b",%b}' % rest


@pytest.mark.parametrize(
    "raw", [b'{"x":%d,"model":null%b}', b'{"x":%d%b}', b'[{"x":%d}%b]', b'{"model":%d%b}']
)
def test_a_large_body_without_a_model_is_refused_too(raw: bytes) -> None:
    """Reading only the outermost level is enough to know."""
    with pytest.raises(NotReadable):
        read(raw % (1, b" " * AT_ONCE))


def test_a_name_that_is_larger_than_a_chunk_is_none() -> None:
    """Decoding it would be a step without a bound."""
    with pytest.raises(NotReadable, match="not a name"):
        read(b'{"model":"%b"}' % (b"\\u0061" * AT_ONCE))
