"""Reading along: what breaks off is asked for again from where it was."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from llmgw.cli.doing import logs
from llmgw.errors import Failed, Unreachable

AWAY = Unreachable("cannot reach the control plane at x: refused")


class Plane:
    """A control plane that answers as it was told, call after call."""

    def __init__(self, *answers: Sequence[dict[str, Any] | Exception]) -> None:
        self.answers, self.asked = list(answers), list[dict[str, str | int]]()

    def lines(self, _path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        self.asked.append(query)
        for line in self.answers.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line


def data(text: bytes, until: int) -> dict[str, Any]:
    return {"data": base64.b64encode(text).decode(), "next": until}


def followed(
    plane: Plane, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, *, follow: bool
) -> tuple[bytes, list[str]]:
    """What `llmgw logs` of this control plane prints on stdout, and its lines on stderr."""
    monkeypatch.setattr(logs, "Client", lambda _: plane)
    monkeypatch.setattr(logs, "AGAIN", 0.0)
    logs.run("alpha", 0, follow, previous=False, tail="100", server=None)
    out, err = capsysbinary.readouterr()
    return out, err.decode().splitlines()


def test_following_goes_on_where_it_was(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane is started again, then the agent: said once each, every byte once."""
    first = {"replica": "alpha/x7qf", "rank": 0, "node": "a"}
    plane = Plane(
        [first, data(b"one\n", 4), data(b"tw", 6), AWAY],
        [AWAY],
        [first, data(b"o\n", 8), {"next": 8}, {"error": "cannot read the log: its agent went away"}],
        [first, data(b"three\n", 14), {"said": "rank 0 of alpha/x7qf has ended"}],
    )
    out, err = followed(plane, capsysbinary, monkeypatch, follow=True)
    assert out == b"one\ntwo\nthree\n"
    assert err == [
        "alpha/x7qf rank 0 on a",
        f"{AWAY.said}: asking again",
        "cannot read the log: its agent went away: asking again",
        "rank 0 of alpha/x7qf has ended",
    ]
    assert [(query["name"], query.get("offset")) for query in plane.asked] == [
        ("alpha", None), ("alpha/x7qf", 6), ("alpha/x7qf", 6), ("alpha/x7qf", 8)
    ]  # fmt: skip


def test_following_says_once_that_a_node_is_silent(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For how long it has been silent is another number each time: that is no news."""
    silent = [
        {"error": f"cannot read the log: node a is Unreachable, it spoke last {age} ago"}
        for age in ("16s", "17s", "1m2s")
    ]
    first = {"replica": "alpha/x7qf", "rank": 0, "node": "a"}
    plane = Plane([first, data(b"one\n", 4), silent[0]], [silent[1]], [silent[2]], [{"said": "it has ended"}])
    _, err = followed(plane, capsysbinary, monkeypatch, follow=True)
    assert err == ["alpha/x7qf rank 0 on a", f"{silent[0]['error']}: asking again", "it has ended"]


@pytest.mark.parametrize("follow", [True, False])
def test_nobody_follows_what_never_answered(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, *, follow: bool
) -> None:
    """A name that is none, or a control plane that is away from the start, is an error at once."""
    with pytest.raises(Unreachable):
        followed(Plane([AWAY]), capsysbinary, monkeypatch, follow=follow)


def test_who_does_not_follow_is_not_kept_waiting(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without -f what breaks off is an error, with it only after a long silence."""
    broken = [data(b"one\n", 4), {"error": "cannot read the log: its agent went away"}]
    with pytest.raises(Failed, match="went away"):
        followed(Plane(broken), capsysbinary, monkeypatch, follow=False)
    monkeypatch.setattr(logs, "PATIENCE", -1.0)
    with pytest.raises(Failed, match="went away"):
        followed(Plane(broken), capsysbinary, monkeypatch, follow=True)
