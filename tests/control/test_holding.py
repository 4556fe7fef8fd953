"""What becomes of a tree: each verdict by itself, without files, clocks or a fleet."""

import dataclasses
import datetime

from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog.load import load_files
from llmgw.catalog.model import Catalog
from llmgw.control import holding
from llmgw.control.holding import Followed, Refused, Rules, Same, Valid, Why
from llmgw.planning.fired import Fired
from llmgw.planning.plan import Plan, Row, Service
from tests.control.plane import files

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(minutes=4)
FILES, COMMITS = Rules("files", "auto"), Rules("commits", "auto")
MANUAL = Rules("commits", "manual")
PLAN = Plan("p" * 64, 1, (Row("+", "qwen", "model_added", "new model"),), (Service("qwen", 0, 0, 1),))
MASS_STOP = Fired("mass_stop", "3", "it stops 3 of 4 ready replicas (75 %), the limit is 30 %, from 3 on")
OF_TWO = Valid("digest-2", PLAN)
STANDS = Followed("mark-1", FILES, "digest-1", "c1", "digest-1")


def why(found: Refused | Same | Valid, rules: Rules, before: Followed = STANDS) -> Why | None:
    """Why a new tree is held; None where it is not."""
    verdict = holding.judge(before, "mark-2", "c2", found, rules, "digest-1", NOW)
    assert verdict.adopt == (verdict.followed.hold is None and isinstance(found, Valid))
    return verdict.followed.hold.why if verdict.followed.hold is not None else None


def test_what_is_valid_and_safe_is_adopted() -> None:
    """Automatic means: nobody is asked while nothing is lost."""
    assert why(OF_TWO, FILES) is None
    assert why(OF_TWO, COMMITS) is None


def test_manual_waits_for_a_person() -> None:
    """Pending is not held: it says in short what an apply would do."""
    verdict = holding.judge(STANDS, "mark-2", "c2", OF_TWO, MANUAL, "digest-1", NOW)
    assert verdict.followed.hold is not None
    assert (verdict.adopt, verdict.followed.hold.why) == (False, "pending")
    assert verdict.followed.hold.said == "starts 1"
    assert verdict.followed.hold.next == "llmgw plan catalog, then llmgw apply catalog"


def test_each_reason_to_hold() -> None:
    """Invalid and guarded hold in every mode; what looks cut or gives something up only where files are followed."""
    assert why(Refused("1 error"), FILES) == why(Refused("1 error"), MANUAL) == "invalid"
    guarded = dataclasses.replace(OF_TWO, plan=dataclasses.replace(PLAN, guards=(MASS_STOP,)))
    assert why(guarded, COMMITS) == why(guarded, MANUAL) == "guard"
    removal = dataclasses.replace(OF_TWO, given_up=("a.yaml:1: model qwen is removed",))
    assert (why(removal, FILES), why(removal, COMMITS)) == ("removal", None)
    cut = dataclasses.replace(OF_TWO, cut_short=("a.yaml:9: the last line has lost its end",))
    assert (why(cut, FILES), why(cut, COMMITS)) == ("half-written", None)


def test_a_verdict_is_about_one_tree_one_set_of_rules_and_what_stood() -> None:
    """The same bytes under the same rules are not tried again; another release or other rules judge anew."""
    assert holding.judged(STANDS, "mark-1", FILES, "digest-1")
    assert not holding.judged(STANDS, "mark-2", FILES, "digest-1")
    assert not holding.judged(STANDS, "mark-1", COMMITS, "digest-1")
    assert not holding.judged(STANDS, "mark-1", dataclasses.replace(FILES, build="next"), "digest-1")


def test_what_is_held_is_judged_again_when_something_else_stands() -> None:
    """A removal is one from what stood then: from what stands now the same tree may remove nothing."""
    removal = dataclasses.replace(OF_TWO, given_up=("a.yaml:1: model qwen is removed",))
    held = holding.judge(STANDS, "mark-2", "c2", removal, FILES, "digest-1", NOW).followed
    assert holding.judged(held, "mark-2", FILES, "digest-1")
    now = holding.again(held, "digest-0", "revision 7 by ada", LATER)
    assert now.hold == held.hold
    assert not holding.judged(now, "mark-2", FILES, "digest-0")
    assert holding.judge(now, "mark-2", "c2", OF_TWO, FILES, "digest-0", LATER).adopt
    still = holding.judge(now, "mark-2", "c2", removal, FILES, "digest-0", LATER).followed
    assert still.hold == held.hold
    assert holding.judged(still, "mark-2", FILES, "digest-0")


def test_what_stood_under_a_held_tree_is_left_too() -> None:
    """A person applied something else while another tree waited: what they moved away from is not taken again."""
    held = holding.judge(STANDS, "mark-2", "c2", Refused("1 error"), FILES, "digest-1", NOW).followed
    moved = holding.again(held, "digest-0", "revision 7 by ada", LATER)
    assert moved.left == ("digest-1",)
    assert why(Valid("digest-1", PLAN), COMMITS, moved) == "left"
    further = holding.judge(moved, "mark-2", "c2", Refused("1 error"), FILES, "digest-0", LATER).followed
    assert holding.again(further, "digest-9", "revision 8 by ada", LATER).left == ("digest-1", "digest-0")


def test_what_is_left_is_remembered_within_bounds() -> None:
    """A person who applies all night fills no disk: the newest are remembered."""
    left = holding.again(STANDS, "other-0", "ada", NOW)
    for number in range(1, 2 * holding.MOST_LEFT):
        left = holding.again(left, f"other-{number}", "ada", NOW)
    assert len(left.left) == holding.MOST_LEFT
    assert left.left[-1] == f"other-{2 * holding.MOST_LEFT - 2}"


Fleet = frozenset[str]
CATALOGS = st.sampled_from([frozenset(names.split()) for names in ("", "phi", "qwen", "phi qwen")])


def weighed(tree: Fleet, standing: Fleet) -> Same | Valid:
    """A tree of models, each running once, against those that stand."""
    if tree == standing:
        return Same(named(tree))
    gone = tuple(sorted(standing - tree))
    guards = () if tree or not standing else (Fired("empty", "", "nothing is left"),)
    return Valid(named(tree), dataclasses.replace(PLAN, guards=guards), gone)


def named(models: Fleet) -> str:
    return "+".join(sorted(models)) or "none"


@given(
    st.lists(st.tuples(st.sampled_from(("tree", "apply")), CATALOGS), min_size=4, max_size=16),
    st.sampled_from((FILES, COMMITS)),
)
def test_verdicts_are_those_of_today(steps: list[tuple[str, Fleet]], rules: Rules) -> None:
    """However trees and applies follow one another: nobody's apply is undone, and nothing is held for what stood once."""
    followed, standing, tree = Followed(), frozenset[str](), frozenset[str]()
    left: set[Fleet] = set()
    for kind, models in (("tree", tree), *steps):
        if kind == "tree":
            tree = models
        elif models != standing:
            left.add(standing)
            standing = models
        followed = holding.again(followed, named(standing), "ada", NOW)
        found, mark = weighed(tree, standing), named(tree)
        if not holding.judged(followed, mark, rules, named(standing)):
            verdict = holding.judge(followed, mark, "", found, rules, named(standing), NOW)
            followed = verdict.followed
            if verdict.adopt:
                assert tree not in left
                standing = tree
        if tree == standing:
            left.clear()
        fresh = holding.judge(
            Followed(), mark, "", weighed(tree, standing), rules, named(standing), NOW
        ).followed.hold
        if tree not in left:
            assert (followed.hold and followed.hold.why) == (fresh and fresh.why)
        else:
            assert followed.hold is not None


def test_what_means_the_same_needs_no_adoption() -> None:
    """A comment, a moved file: the digest is of the meaning."""
    verdict = holding.judge(STANDS, "mark-2", "c2", Same("digest-1"), FILES, "digest-1", NOW)
    assert not verdict.adopt
    assert verdict.followed == Followed("mark-2", FILES, "digest-1", "c2", "digest-1")


def test_a_rollback_is_not_undone() -> None:
    """A person applied something else: the tree they left is held, and stays so through other trees."""
    left = holding.again(STANDS, "digest-0", "revision 7 by ada", NOW)
    assert left.hold is not None
    assert left.hold.why == "left"
    assert "revision 7 by ada was applied in its place" in left.hold.said
    later = holding.again(left, "digest-9", "revision 8 by ada", LATER)
    assert later.hold is not None
    assert "revision 8 by ada was applied in its place" in later.hold.said
    assert later.hold.since == NOW
    assert holding.again(left, "digest-0", "revision 7 by ada", LATER) == left
    broken = holding.judge(left, "mark-2", "", Refused("1 error"), FILES, "digest-0", NOW).followed
    assert why(Valid("digest-1", PLAN), FILES, broken) == "left"
    assert why(OF_TWO, FILES, broken) is None


def test_returning_to_what_was_left_forgets_it() -> None:
    """Once a person applies it, or another tree is adopted, nothing is left any more."""
    left = holding.again(STANDS, "digest-0", "revision 7 by ada", NOW)
    assert holding.again(left, "digest-1", "revision 8 by ada", LATER) == STANDS
    assert holding.judge(left, "mark-2", "c2", OF_TWO, FILES, "digest-0", NOW).followed.left == ()


def test_an_apply_of_what_is_held_ends_the_hold() -> None:
    """The person said yes: nothing is held, at once."""
    removal = dataclasses.replace(OF_TWO, given_up=("a.yaml:1: model qwen is removed",))
    held = holding.judge(STANDS, "mark-2", "c2", removal, FILES, "digest-1", NOW).followed
    assert holding.again(held, "digest-1", "revision 1 by ada", LATER) == held
    assert holding.again(held, "digest-2", "revision 2 by ada", LATER).hold is None


def test_a_blind_look_changes_nothing_else() -> None:
    """What cannot be read says nothing about the catalog; since when is kept over looks."""
    blind = holding.blinded(STANDS, "cannot read it", "mount it", NOW)
    still = holding.blinded(blind, "cannot read it", "mount it", LATER)
    assert still == blind
    assert dataclasses.replace(blind, blind=None) == STANDS


def test_since_when_survives_another_judgement() -> None:
    """The same tree held for the same reason has been held all the time."""
    held = holding.judge(STANDS, "mark-2", "", Refused("1 error"), FILES, "digest-1", NOW).followed
    newer = dataclasses.replace(FILES, build="next")
    again = holding.judge(held, "mark-2", "", Refused("2 errors"), newer, "digest-1", LATER).followed
    assert again.hold is not None
    assert (again.hold.said, again.hold.since) == ("2 errors", NOW)


def test_what_a_guard_says_is_what_is_held() -> None:
    """The first refusal, the others below it, and an apply that allows exactly these."""
    guards = (MASS_STOP, Fired("outage", "qwen", "qwen has 2 ready now and 0 on the way"))
    found = dataclasses.replace(OF_TWO, plan=dataclasses.replace(PLAN, guards=guards))
    hold = holding.judge(STANDS, "mark-2", "c2", found, FILES, "digest-1", NOW).followed.hold
    assert hold is not None
    assert (hold.said, hold.details) == (MASS_STOP.said, (guards[1].said,))
    assert hold.next.endswith("llmgw apply catalog --allow-mass-stop 3 --allow-outage qwen")


def of(texts: dict[str, str]) -> Catalog:
    return load_files({name: text.encode() for name, text in texts.items()})


def lost(after: dict[str, str], before: dict[str, str]) -> tuple[str, ...]:
    return holding.given_up(of(before), of(after))


def test_what_is_given_up_has_its_place() -> None:
    """Models, bounds, list items, settings: each by the line that says so now, or said so last."""
    two = files("qwen", "phi", replicas=2)
    assert lost(files("qwen", replicas=2), two) == ("phi.yaml:1: model phi is removed",)
    assert lost(files("qwen", "phi"), two) == (
        "phi.yaml:6: phi: scaling.min 2 -> 1",
        "qwen.yaml:6: qwen: scaling.min 2 -> 1",
    )
    aliased = {**two, "qwen.yaml": two["qwen.yaml"] + "aliases: [chat, default]\nprotect: true\n"}
    fewer = {**two, "qwen.yaml": two["qwen.yaml"] + "aliases: [default]\n"}
    assert lost(fewer, aliased) == (
        "qwen.yaml:7: qwen: aliases loses chat",
        "qwen.yaml:1: qwen: protect is removed",
    )
    tuned = {**two, "small.yaml": two["small.yaml"] + "args: {threads: 2}\ndrain: 9s\n"}
    assert lost(two, tuned) == (
        "small.yaml:1: small: args.threads is removed",
        "small.yaml:1: small: drain is back at its default",
    )


def test_what_grows_or_changes_gives_nothing_up() -> None:
    """More replicas, another value, a new model: none of them takes anything away."""
    assert lost(files("qwen", "phi", replicas=3, length=1024), files("qwen")) == ()
    assert holding.given_up(None, of(files("qwen"))) == ()


def test_a_line_that_lost_its_end_looks_half_written() -> None:
    """`max_model_len: 51` of 512 is valid YAML; that its line does not end any more gives it away."""
    before = files("qwen", length=512)
    cut = {**before, "small.yaml": before["small.yaml"].rstrip("\n")[:-1]}
    assert cut["small.yaml"].endswith("max_model_len: 51")
    said = holding.cut_short(of(before), before, of(cut), cut)
    assert said == ("small.yaml:6: the last line has lost its end",)
    assert holding.cut_short(of(cut), cut, of(before), before) == ()
    unended = {**before, "small.yaml": before["small.yaml"].rstrip("\n")}
    other = {**before, "small.yaml": unended["small.yaml"] + "0"}
    assert holding.cut_short(of(unended), unended, of(other), other) == ()


def test_long_lists_are_counted() -> None:
    """Five lines are read; the sixth is a number."""
    assert holding.shortened([str(n) for n in range(7)])[-1] == "and 2 more"


def test_news_are_told_once() -> None:
    """A journal entry a change: held, pending, blind, seen again, standing."""
    held = holding.judge(
        STANDS, "mark-2", "c2", Refused("1 error", ("a.yaml:1: E201 no",)), FILES, "digest-1", NOW
    ).followed
    assert holding.news(STANDS, held) == [
        ("alarm", "held: 1 error; a.yaml:1: E201 no. llmgw validate catalog")
    ]
    assert holding.news(held, held) == []
    pending = holding.judge(STANDS, "mark-2", "c2", OF_TWO, MANUAL, "digest-1", NOW).followed
    assert holding.news(STANDS, pending) == [("catalog", "pending: starts 1")]
    blind = holding.blinded(held, "cannot read it", "", NOW)
    assert holding.news(held, blind) == [("alarm", "cannot read it; what stands goes on standing")]
    assert holding.news(blind, held) == [("catalog", "can be read again")]
    assert holding.news(held, STANDS) == [("catalog", "stands; nothing is held any more")]
