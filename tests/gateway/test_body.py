"""The model in a body, and nothing else of it."""

import json

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from llmgw.gateway.body import NotReadable, read

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
    renamed = read(raw).asking('q"é')
    assert orjson.loads(renamed) == {**orjson.loads(raw), "model": 'q"é'}
    assert len(renamed) - len(raw) == len(orjson.dumps('q"é')) - len(
        json.dumps(name, ensure_ascii=ascii_only).encode()
    )


def test_a_body_that_asks_for_its_own_model_is_not_touched() -> None:
    """Not parsed, not copied."""
    body = read(b'{"model":"a"}')
    assert body.asking("a") is body.raw


def test_an_escaped_key_is_the_same_key() -> None:
    """As every JSON reader has it."""
    assert read(b'{"m\\u006fdel":"a"}').asking("b") == b'{"m\\u006fdel":"b"}'


@pytest.mark.parametrize(
    "raw", [b"", b"null", b'{"model":""}', b'{"model":["a"]}', b"\xff", b'{"model":"a"} x']
)
def test_what_names_no_model_is_not_readable(raw: bytes) -> None:
    """One reason each, and never another exception."""
    with pytest.raises(NotReadable):
        read(raw)
