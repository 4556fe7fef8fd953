"""Who may join: hashes only, bound to the first that uses a token, refused in sentences that help."""

import concurrent.futures
import datetime
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.joining import Joining, bearer
from llmgw.control.tokens import Token, Tokens, Who, gateway, judge, make
from llmgw.errors import Failed

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


WHOLE, TOKEN = make("node", "", None, NOW)


class Wall:
    """A wall clock that is moved."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> datetime.datetime:
        return self.at


def test_the_disk_has_the_hash_and_never_the_token(tmp_path: pathlib.Path) -> None:
    """Whoever reads the state directory can join nothing with it."""
    text, token = Tokens(tmp_path, Wall()).create("node", "gpu-1", None)
    secret = text.rpartition("_")[2]
    kept = (tmp_path / "tokens.json").read_text()
    assert token.id in kept
    assert secret not in kept
    assert secret not in repr(token)
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_a_token_belongs_to_the_first_node_that_uses_it(tmp_path: pathlib.Path) -> None:
    """A copied file lets nobody else in, also after a restart of the control plane."""
    tokens = Tokens(tmp_path, Wall())
    text, _ = tokens.create("node", "", None)
    found = tokens.judge(text, "node")
    assert isinstance(found, Token)
    assert tokens.claim(found.id, Who("id-1", "gpu-1")) == ""
    assert tokens.claim(found.id, Who("id-1", "gpu-renamed")) == ""
    again = Tokens(tmp_path, Wall())
    assert again.claim(found.id, Who("id-2", "gpu-2")) == (
        f"token {found.id} belongs to node gpu-renamed (id-1); make one for gpu-2"
    )
    assert again.judge(text, "node") == again.rows()[0]


def test_a_machine_that_was_set_up_anew_is_told_how_to_come_back(tmp_path: pathlib.Path) -> None:
    """Its name is known and its id is new: which command makes its token, and that the old node can go."""
    tokens = Tokens(tmp_path, Wall())
    _, token = tokens.create("node", "gpu-1", None)
    assert tokens.claim(token.id, Who("id-1", "gpu-1")) == ""
    assert tokens.claim(token.id, Who("id-2", "gpu-1")) == (
        f"token {token.id} belongs to node gpu-1 (id-1), and this gpu-1 is a new node, id-2, as after its machine was "
        "set up anew: `llmgw token create --node gpu-1` makes one for it; `llmgw node confirm-lost id-1`, then "
        "`llmgw node forget id-1` let the old one go"
    )
    _, other = tokens.create("node", "gpu-1", None)
    assert tokens.claim(other.id, Who("id-2", "gpu-1")) == ""


def test_each_refusal_says_what_would_help(tmp_path: pathlib.Path) -> None:
    """None, nonsense, unknown, of another kind, too late, of another node: each has its own sentence."""
    wall = Wall()
    tokens = Tokens(tmp_path, wall)
    text, token = tokens.create("node", "gpu-1", 60.0)
    stranger, foreign = make("node", "", None, NOW)
    forged = text[:-1] + ("a" if text[-1] != "a" else "b")
    assert tokens.judge("", "node") == ("no token was given; make one with `llmgw token create --node NAME`")
    assert tokens.judge("hello", "node") == "what was given is no token of llmgw"
    assert str(tokens.judge(stranger, "node")).startswith(f"token {foreign.id} is not known here: ")
    assert str(tokens.judge(forged, "node")).startswith(f"token {token.id} is not known here: ")
    assert (
        tokens.judge(text, "gateway")
        == f"token {token.id} is for nodes; make one with `llmgw token create --gateway NAME`"
    )
    assert tokens.claim(token.id, Who("id-2", "gpu-2")) == (
        f"token {token.id} was made for node gpu-1, and this is gpu-2"
    )
    wall.at += datetime.timedelta(seconds=61)
    assert tokens.judge(text, "node") == (f"token {token.id} ran out at 2026-01-01 00:01 UTC; make another")


def test_a_token_in_use_does_not_run_out(tmp_path: pathlib.Path) -> None:
    """`--ttl` bounds how long a token waits; a node that joined is not thrown out by the clock."""
    wall = Wall()
    tokens = Tokens(tmp_path, wall)
    text, token = tokens.create("node", "", 60.0)
    tokens.claim(token.id, Who("id-1", "gpu-1"))
    wall.at += datetime.timedelta(days=400)
    assert isinstance(tokens.judge(text, "node"), Token)


def test_what_another_process_wrote_is_seen_at_once(tmp_path: pathlib.Path) -> None:
    """`llmgw token --state-dir` beside a running control plane: it reads the file again."""
    here, there = Tokens(tmp_path, Wall()), Tokens(tmp_path, Wall())
    text, token = there.create("api", "", None)
    assert isinstance(here.judge(text, "api"), Token)
    there.revoke(token.id)
    assert not here.stands(token.id)
    with pytest.raises(Failed, match="there is no such token"):
        here.revoke(token.id)


def test_writers_at_once_lose_nothing(tmp_path: pathlib.Path) -> None:
    """Each holds the lock for its whole change."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Tokens(tmp_path, Wall()).create("node", "", None)[1].id, range(24)))
    assert {token.id for token in Tokens(tmp_path, Wall()).rows()} == set(made)


def test_a_broken_file_lets_nobody_in_and_throws_nobody_out(tmp_path: pathlib.Path) -> None:
    """The damage is said to whoever comes; who is in stays, because absence is no revocation."""
    tokens = Tokens(tmp_path, Wall())
    text, token = tokens.create("node", "", None)
    joining = Joining(tokens, required=True)
    (tmp_path / "tokens.json").write_text("{")
    entry = joining.opened("/agent", {"authorization": f"Bearer {text}"})
    assert entry.said.startswith(f"cannot read {tmp_path / 'tokens.json'}: ")
    assert joining.stands(token.id)


def test_a_gateways_token_opens_no_door_of_nodes(tmp_path: pathlib.Path) -> None:
    """Neither path nor message alone decides: a gateway that calls itself an agent is turned away."""
    tokens = Tokens(tmp_path, Wall())
    text, token = tokens.create("gateway", "", None)
    joining = Joining(tokens, required=True)
    headers = {"authorization": f"bearer {text}"}
    assert "is for gateways" in joining.opened("/agent", headers).said
    assert joining.opened("/gateway", headers).token == token.id
    said = joining.introduced(token.id, "/gateway", "agent", "id-1", "gpu-1")
    assert said == "cannot join: agent gpu-1 came through the door of a gateway"
    assert joining.introduced(token.id, "/gateway", "gateway", "front:8000-17", "front:8000-17") == ""
    assert joining.introduced(token.id, "/gateway", "gateway", "front:8000-18", "front:8000-18") == ""
    assert "belongs to gateway front:8000" in joining.introduced(
        token.id, "/gateway", "gateway", "back:8000", "back:8000"
    )
    assert gateway("front:8000-17").id == "front:8000"


@given(st.text(max_size=120))
def test_nothing_but_the_token_itself_opens(text: str) -> None:
    """Whatever is presented instead is refused, and what is said repeats none of the kept secret."""
    said = judge(text, "node", [TOKEN], NOW)
    assert isinstance(said, str)
    assert WHOLE.rpartition("_")[2] not in said


@pytest.mark.parametrize(
    ("header", "token"), [("Bearer x", "x"), ("bearer  x ", "x"), ("Basic x", ""), ("", ""), ("Bearer", "")]
)
def test_only_bearer_is_a_token(header: str, token: str) -> None:
    """What another scheme carries is none of ours."""
    assert bearer({"authorization": header}) == token
