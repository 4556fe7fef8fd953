"""Names between documents, where there are many of them."""

import pytest

from llmgw.catalog import references
from tests.catalog.samples import MODEL, PROFILE, catalog, checked


def chain(length: int, *, closed: bool) -> list[str]:
    """Models that each fall back to the next, the last one to the first where `closed`."""
    following = [f"m{(number + 1) % length}" for number in range(length)]
    return [
        MODEL.replace("name: llama", f"name: m{number}")
        + (f"fallbacks: [{name}]\n" if closed or number < length - 1 else "")
        for number, name in enumerate(following)
    ]


def test_a_long_chain_of_fallbacks_is_no_ring() -> None:
    """Depth costs no recursion."""
    assert len(catalog(*chain(1500, closed=False), PROFILE).models) == 1500


def test_a_long_ring_is_told_once_and_shortened() -> None:
    """A ring of thousands is one problem of one line."""
    (problem,) = checked(*chain(1500, closed=True), PROFILE).diagnostics

    assert problem.said == (
        "fallbacks go round in a ring: m0 → m1 → m2 → m3 → m4 → m5 → m6 → … 1493 more → m0"
    )


def test_looking_for_what_was_meant_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many unknown names the first get a suggestion, and all are reported."""
    monkeypatch.setattr(references, "MAX_COMPARISONS", 2)
    text = MODEL.replace("[h100-tp4]", "[h100-tp1, h100-tp2, h100-tp3]")

    found = checked(text, PROFILE).diagnostics

    assert [problem.help for problem in found] == ["did you mean `h100-tp4`?"] * 2 + [""]


def test_a_broken_model_still_has_its_names() -> None:
    """A model that is wrong elsewhere is not unknown to others, by name or by alias."""
    broken = MODEL + "aliases: [fast]\nreplicas: 3\n"
    other = MODEL.replace("name: llama", "name: other") + "fallbacks: [llama]\naliases: [slow]\n"
    third = MODEL.replace("name: llama", "name: third") + "fallbacks: [fast]\n"

    assert [problem.code for problem in checked(broken, other, third, PROFILE).diagnostics] == ["E203"]


def test_a_catalog_of_wrong_names_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many problems that they would fill the memory are one more problem, at the place where looking ended."""
    monkeypatch.setattr(references, "MAX_FOUND", 2)
    text = MODEL.replace("[h100-tp4]", "[a, b, c, d]")

    found = checked(text, PROFILE).diagnostics

    assert [problem.code for problem in found] == ["E301", "E301", "E307"]
    assert "more than 2 wrong names" in found[-1].said
    assert found[-1].spot.line[found[-1].place.column - 1] == "c"


def test_exactly_as_many_as_are_looked_for_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one that fits is a problem as it is."""
    monkeypatch.setattr(references, "MAX_FOUND", 2)

    found = checked(MODEL.replace("[h100-tp4]", "[a, b]"), PROFILE).diagnostics

    assert [problem.code for problem in found] == ["E301", "E301"]
