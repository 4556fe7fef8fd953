"""The comment of a pull request: no name does anything in it, and no plan is too long for it."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.kit.chance import seeded
from llmgw.planning.desired import Desired
from llmgw.planning.markdown import LIMIT, Header, comment, escaped, header_line, read_header
from llmgw.planning.plan import NotPlaced, Plan, make_plan
from llmgw.planning.rows import Row
from tests.planning.fleets import NOW, registered
from tests.planning.story import Story, a_catalog, a_model, a_node, a_profile

HOSTILE = (
    "[bold]", "\x1b[31mred", "@all", "a|b", "x" * 200, "`id`", "<!-- llmgw:plan {} -->", "--> <b>", "# title",
    "![x](http://evil/)", "```", "</details>", "\u202egnp", "www.evil.example", "~~x~~", "&amp;", "$x$", "a\nb",
)  # fmt: skip


def hostile_plan(name: str) -> Plan:
    """A plan in which everything that somebody else wrote is `name`."""
    row = Row("+", name, name, name, replica=name, nodes=(name,), place=f"{name}:3", commands=((name,),))
    rows = (row, dataclasses.replace(row, symbol="-"), dataclasses.replace(row, symbol="~"))
    stuck = NotPlaced(name, name, ((name, "cards_free", name),), 1, would_fit=(name,))
    return Plan(
        "ab" * 32, 1, rows, (), (stuck,), alarms=(name,), warnings=(name,), alone=(row,), cluster=name,
        catalog=name, applied=name, observed=name, suppose=(name,),
    )  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing(name: str) -> None:
    """Nobody is pinged, no cell is left, no comment is opened, the fence is closed by us alone."""
    text = comment(hostile_plan(name), head=name)
    first, *rest = text.split("\n")
    assert first.count("<!--") == first.count("-->") == 1
    body = "\n".join(rest)
    assert "<!--" not in body
    assert "-->" not in body
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "@" not in body
    assert [line for line in rest if line.startswith("```")] == ["```diff", "```"]
    table = [line for line in rest if line.startswith("|")]
    assert {line.count("|") for line in table} == {8}
    assert body.count("</details>") == 1
    header = read_header(text)
    assert header is not None
    assert header.digest == "ab" * 32


@given(cluster=st.text(), head=st.text(), truncated=st.booleans())
def test_a_header_reads_back(cluster: str, head: str, truncated: bool) -> None:
    """Whatever a cluster is called, its header says the same again, in one line."""
    header = Header(cluster, "00" * 32, head, truncated)
    line = header_line(header)
    assert read_header(f"{line}\nmore") == header
    assert "\n" not in line


@given(st.text(max_size=80))
def test_what_is_escaped_shows_itself(text: str) -> None:
    """No character that Markdown or HTML reads is left, and the text can be had back."""
    shown = escaped(text)
    assert not set(re.sub(r"&#\d+;", "", shown)) & set("\\`*_{}[]()#+!|<>&@~^$\n\r\t")


def test_a_forged_header_is_none() -> None:
    """Only the first line counts, and only whole."""
    line = header_line(Header("prod", "ab" * 32, "3f2a91c"))
    for text in (
        f"\n{line}",
        f"x {line}",
        f"{line} x",
        line.replace("false", "0"),
        "<!-- llmgw:plan [] -->",
        "",
    ):
        assert read_header(text) is None


def test_five_hundred_models_fit_and_say_that_they_were_cut() -> None:
    """Details are dropped from the bottom, what is left is closed, and the header bars approval."""
    names = [f"model-{number:03}-{'x' * 60}" for number in range(500)]
    story = Story(catalog=None)
    fleet = registered(*(a_node(f"node-{number:03}", gpus=8) for number in range(64)))
    new = a_catalog(*map(a_model, names))
    plan = make_plan(story.desired, Desired(new), fleet, story.ledger, NOW, seeded(1), story.timers, base=0)
    assert len(plan.rows) == 500
    text = comment(plan, head="3f2a91c")
    assert len(text) <= LIMIT
    header = read_header(text)
    assert header is not None
    assert header.truncated
    assert "cannot be approved here" in text
    assert text.rstrip().endswith("nothing is changed.")
    assert text.count("<details>") == text.count("</details>")
    few = dataclasses.replace(plan, rows=plan.rows[:20], service=plan.service[:20])
    header = read_header(comment(few))
    assert header is not None
    assert not header.truncated


def changed(**more: object) -> Plan:
    """A plan that changes the profile of what runs."""
    story = Story(a_node("n0"), catalog=a_catalog(a_model()))
    story.runs()
    new = Desired(a_catalog(a_model(), profiles=[a_profile(**more)]))
    return make_plan(
        story.desired, new, story.fleet, story.ledger, story.now, seeded(3), story.timers, base=1
    )


@pytest.mark.parametrize(("settings", "whole"), [(20, True), (21, False)])
def test_a_difference_that_is_not_shown_bars_approval(settings: int, whole: bool) -> None:
    """Twenty settings are shown one by one, on lines of their cell; of one more nobody can say yes here."""
    env = tuple((f"SETTING_{number:02}", "0") for number in range(settings))
    text = comment(changed(env=env))
    header = read_header(text)
    assert header is not None
    assert header.truncated != whole
    (row,) = [line for line in text.split("\n") if line.startswith("|") and "qwen" in line]
    assert row.count("SETTING") == 20
    assert ("cannot be approved here" in text) != whole


def test_a_value_that_is_cut_bars_approval() -> None:
    """What stands at the end of a long value was read by nobody."""
    header = read_header(comment(changed(env=(("TEMPLATE", "x" * 300 + "evil"),))))
    assert header is not None
    assert header.truncated


def test_no_changes_is_short() -> None:
    """Nothing to do is one line and where it was read."""
    text = comment(Plan("ab" * 32, 1, (), ()))
    assert text.splitlines()[1] == "### llmgw plan: no changes"
    assert len(text.splitlines()) <= 5
