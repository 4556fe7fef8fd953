"""Who holds a token: nodes, gateways and people, as hashes. The only thing kept of a token is its sha256.

`control.joining` asks at every stream, `control.token_routes` at every request and for `llmgw token`. That
verb may also write the file itself, on this machine, before anybody has a token: so it is read again
whenever it changed, and written under a lock.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import hmac
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import pydantic

from llmgw.errors import Failed
from llmgw.kit.files import open_regular, read_regular, write_atomic

Kind = Literal["node", "gateway", "api"]

MOST = 10_000
_TEXT = re.compile(r"llmgw-(?:node|gateway|api)_(?P<id>[0-9a-f]{8})_(?P<secret>[0-9a-f]{64})\Z")
_WHOSE: Mapping[Kind, str] = {"node": "nodes", "gateway": "gateways", "api": "the API"}
_SHARED = re.compile(r"(:\d+)-\d+\Z")
"""What processes that share one port add to the name of their gateway."""
_NUMBER = re.compile(r"-\d+\Z")


class Token(pydantic.BaseModel):
    """One token. `name` is the node or gateway that it was made for, empty = the first that comes.

    `until` is when it stops being good for anybody new (of the API: for anybody); `bound` is who used it first.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    id: str
    kind: Kind
    sha256: str
    name: str = ""
    created: pydantic.AwareDatetime
    until: pydantic.AwareDatetime | None = None
    bound: str = ""
    bound_name: str = ""


class _Kept(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")

    tokens: tuple[Token, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Who:
    """A node by id and name, or a gateway, both times by name.

    `family` is a gateway's name without a number at its end: a token of the family serves each of them.
    """

    id: str
    name: str
    family: str = ""


def make(kind: Kind, name: str, ttl: float | None, now: datetime.datetime) -> tuple[str, Token]:
    """A new token: the text that its holder keeps, and what is kept here. `ttl` in seconds."""
    number, secret = secrets.token_hex(4), secrets.token_hex(32)
    until = now + datetime.timedelta(seconds=ttl) if ttl is not None else None
    token = Token(id=number, kind=kind, sha256=_hash(secret), name=name, created=now, until=until)
    return f"llmgw-{kind}_{number}_{secret}", token


def judge(text: str, kind: Kind, known: Iterable[Token], now: datetime.datetime) -> Token | str:
    """The token whose text this is, or why it opens nothing here. Nothing that is said repeats the secret."""
    if not text:
        return f"no token was given; make one with `llmgw token create{_asked(kind)}`"
    match = _TEXT.match(text)
    if match is None:
        return "what was given is no token of llmgw"
    token = next((token for token in known if token.id == match["id"]), None)
    if token is None or not hmac.compare_digest(token.sha256, _hash(match["secret"])):
        return f"token {match['id']} is not known here: it was revoked, or another control plane made it"
    if token.kind != kind:
        return (
            f"token {token.id} is for {_WHOSE[token.kind]}; make one with `llmgw token create{_asked(kind)}`"
        )
    if _ran_out(token, now):
        return f"token {token.id} ran out at {token.until:%Y-%m-%d %H:%M} UTC; make another"
    return token


def claim(token: Token, who: Who, known: Iterable[Token], now: datetime.datetime) -> str:
    """Why `who` may not come with this token, or nothing. One that is bound is bound for good.

    What another one of the `known` has is not to be had, but by a token that was made for that very name.
    """
    if token.bound and token.bound not in (who.id, who.family):
        if token.kind == "node" and who.name in (token.name, token.bound_name):
            return (
                f"token {token.id} belongs to node {token.bound_name} ({token.bound}), and this {who.name} is a new node, "
                f"{who.id}, as after its machine was set up anew: `llmgw token create --node {who.name}` makes one for "
                f"it; `llmgw node confirm-lost {token.bound}`, then `llmgw node forget {token.bound}` let the old one go"
            )
        return f"token {token.id} belongs to {token.kind} {token.bound_name} ({token.bound}); make one for {who.name}"
    if token.name and token.name not in (who.name, who.family):
        return f"token {token.id} was made for {token.kind} {token.name}, and this is {who.name}"
    if _settled(token, who):
        return ""
    others = (other for other in known if other.kind == token.kind and other.id != token.id)
    return next(filter(None, (_taken(token, who, other, now) for other in others)), "")


def _settled(token: Token, who: Who) -> bool:
    return (token.bound, token.bound_name) == (who.id, who.name)


def _bound(token: Token, who: Who) -> Token:
    whole = token.name and token.name == who.family
    name = who.family if whole else who.name
    return token.model_copy(update={"bound": who.family if whole else who.id, "bound_name": name})


def _taken(token: Token, who: Who, other: Token, now: datetime.datetime) -> str:
    """What of `who` belongs to the other token, or nothing."""
    names = (other.name, other.bound_name)
    if _ran_out(other, now) or (token.name == who.name and who.name in names):
        return ""
    free = f"`llmgw token revoke {other.id}` gives it free"
    if other.bound == who.id and other.bound != token.bound and token.kind == "node":
        whose = f"token {other.id} of node {other.bound_name}"
        return f"id {who.id} belongs to {whose}; {free}, or give {who.name} a state directory of its own"
    if who.name in names and token.name != who.name:
        return f"name {who.name} belongs to token {other.id}; {free}, or choose another"
    return ""


def _ran_out(token: Token, now: datetime.datetime) -> bool:
    return token.until is not None and now > token.until and not token.bound  # of the API: never bound


def gateway(name: str) -> Who:
    """A gateway as a token knows it: processes that share a port share it."""
    whole = _SHARED.sub(r"\1", name)
    return Who(whole, whole, _NUMBER.sub("", whole))


class Tokens:
    """The tokens of one state directory, read again whenever somebody changed the file."""

    def __init__(self, root: pathlib.Path, wall: Callable[[], datetime.datetime]) -> None:
        self._path, self._wall = root / "tokens.json", wall
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def create(self, kind: Kind, name: str, ttl: float | None) -> tuple[str, Token]:
        """A new token, durable before its text is given away. Raises Failed."""
        text, token = make(kind, name, ttl, self._wall())
        with self._written() as tokens:
            if len(tokens) >= MOST:
                raise Failed(f"cannot make a token: {MOST} are the most", help="llmgw token revoke ID")
            tokens[token.id] = token
        return text, token

    def revoke(self, number: str) -> None:
        """Forget a token: what was opened with it ends, and it opens nothing more. Raises Failed."""
        with self._written() as tokens:
            if tokens.pop(number, None) is None:
                raise Failed(f"cannot revoke {number[:40]}: there is no such token", help="llmgw token list")

    def rows(self) -> tuple[Token, ...]:
        """Every token, oldest first. Raises Failed."""
        return tuple(sorted(self._read().values(), key=lambda token: (token.created, token.id)))

    def stands(self, number: str) -> bool:
        """Whether the token is still known. Raises Failed."""
        return number in self._read()

    def judge(self, text: str, kind: Kind) -> Token | str:
        """As `judge`, of the tokens here. Raises Failed."""
        return judge(text, kind, self._read().values(), self._wall())

    def claim(self, number: str, who: Who) -> str:
        """As `claim`; the first that comes is the only one from then on, durably. Raises Failed."""
        token = self._read().get(number)
        if token is None:
            return f"token {number} was revoked"
        said = claim(token, who, self._tokens.values(), self._wall())
        if said or _settled(token, who) or token.bound not in ("", who.id):
            return said
        with self._written() as tokens:
            token = tokens.get(number, token)
            said = claim(token, who, tokens.values(), self._wall())
            if not said:
                tokens[number] = _bound(token, who)
        return said

    # --- the file ----------------------------------------------------------------------------

    def _read(self) -> dict[str, Token]:
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                kept = _Kept.model_validate_json(read_regular(self._path))
                self._tokens, self._seen = {token.id: token for token in kept.tokens}, seen
        except FileNotFoundError:
            self._tokens, self._seen = {}, None
        except OSError as error:
            raise Failed(
                f"cannot read {self._path}: {(error.strerror or str(error)).lower()}",
                help="put a copy back, or remove it and make every token anew",
            ) from error
        except pydantic.ValidationError as error:
            raise Failed(
                f"cannot read {self._path}: {error.errors()[0]['msg'].lower()}",
                help="put a copy back, or remove it and make every token anew",
            ) from error
        return self._tokens

    @contextlib.contextmanager
    def _written(self) -> Iterator[dict[str, Token]]:
        """The tokens, to change; durable when the block ends well. Raises Failed."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = open_regular(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Failed(f"cannot use {self._path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = dict(self._read())
            yield tokens
            write_atomic(self._path, _Kept(tokens=tuple(tokens.values())).model_dump_json(indent=1).encode())
        except OSError as error:
            raise Failed(f"cannot write {self._path}: {error.strerror}. Nothing was changed") from error
        finally:
            os.close(lock)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _asked(kind: Kind) -> str:
    return {"node": " --node NAME", "gateway": " --gateway NAME", "api": " --api"}[kind]
