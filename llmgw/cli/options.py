"""Options that several verbs share, and the kinds of value they take. Light: every `--help` imports this."""

import pathlib
import re
import shlex
from collections.abc import Callable
from typing import Any

import click

from llmgw.kit.units import seconds, size

SERVER = "127.0.0.1:7600"
HUB = "https://huggingface.co"

LONGEST = 365 * 86400.0
"""Seconds of the longest duration that anybody can mean."""


_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_-]{0,62}")
LONGEST_ADDRESS = 255
"""Characters of HOST:PORT: what is kept for it is in a directory of that name."""


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`; a host that is left out is loopback. Raises ValueError with what is wrong."""
    host, _, port = text.rpartition(":")
    if not _PORT.fullmatch(port) or int(port) > 65535:
        why = "after the last colon stands a port, at most 65535"
    elif len(text.encode(errors="replace")) > LONGEST_ADDRESS:
        why = f"it is longer than {LONGEST_ADDRESS} characters"
    elif not host or _is_host(host):
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
    else:
        why = "before it stands a name, an IPv4 address, or an IPv6 address in brackets"
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    raise ValueError(f"{shown!r} is no HOST:PORT: {why}")


def _is_host(host: str) -> bool:
    """Whether every resolver takes it: what is no host ends deep inside of one, in an error of its own."""
    import ipaddress

    labels = host.removesuffix(".").split(".")
    try:
        if host.startswith("[") and host.endswith("]"):
            return bool(ipaddress.IPv6Address(host[1:-1]))
        if len(labels) == 4 and all(label.isdecimal() for label in labels):
            return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False
    if not host.isascii() or host.lower().startswith("xn--"):
        return _is_international(host)
    return all(_LABEL.fullmatch(label) for label in labels)


def _is_international(host: str) -> bool:
    """Whether both who call it, httpx and the resolver, know the name behind it."""
    import httpx

    try:
        return bool(httpx.URL(f"http://{host}:1").host) and bool(host.encode("idna"))
    except (httpx.InvalidURL, UnicodeError):
        return False


class Address(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`, `[v6]:PORT` or `:PORT` (loopback)."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_address(str(value))
        except ValueError as error:
            self.fail(f"cannot use it: {error}", param, ctx)


class AddressOrOff(click.ParamType[tuple[str, int] | None]):
    """`HOST:PORT`, or `off`: None."""

    name = "HOST:PORT|off"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int] | None:
        return None if value == "off" else Address().convert(value, param, ctx)


class Ports(click.ParamType[tuple[int, int]]):
    """`FIRST-LAST`, both included."""

    name = "FIRST-LAST"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        first, _, last = str(value).partition("-")
        if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= 65535):
            self.fail(f"{value!r} is no FIRST-LAST between 1 and 65535", param, ctx)
        return int(first), int(last)


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, found, text = str(value).partition("=")
        if not (key and found and text):
            self.fail(f"{value!r} is no NAME=VALUE", param, ctx)
        return key, text


class Duration(click.ParamType[float]):
    """`500ms`, `30s`, `20m`: seconds as a float, at most a year; with `positive`, more than none."""

    name = "DURATION"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            found = seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found > LONGEST or (self._positive and found <= 0):
            least = "more than 0 and " if self._positive else ""
            self.fail(f"cannot use {str(value)[:40]!r}: {least}at most 365d is possible", param, ctx)
        return found


class Size(click.ParamType[int]):
    """`80GiB`, `512MiB`: bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Sink(click.ParamType[tuple[str, pathlib.Path]]):
    """`FORMAT:FILE`: one more place for an answer."""

    name = "FORMAT:FILE"
    formats = ("text", "json", "markdown")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, pathlib.Path]:
        if isinstance(value, tuple):
            return value
        form, colon, name = str(value).partition(":")
        if form not in self.formats or not colon or not name:
            self.fail(f"{value!r} is no FORMAT:FILE with {', '.join(self.formats)}", param, ctx)
        return form, pathlib.Path(name)


PATH = click.Path(path_type=pathlib.Path)
CATALOG = "catalog"


def catalog_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """`PATH`, by default ./catalog."""
    return click.argument("path", default=CATALOG, type=PATH)(function)


def naming(verb: str, path: pathlib.Path) -> str:
    """`llmgw apply next`, to be pasted; the usual catalog needs no name."""
    return f"llmgw {verb}" if str(path) == CATALOG else f"llmgw {verb} {shlex.quote(str(path))}"


def _server(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """HOST:PORT as it was written, refused where it is none."""
    if value is not None:
        Address().convert(value, param, ctx)
    return value


def server_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--server HOST:PORT`: option, then LLMGW_SERVER, then llmgw.toml here or above, then the default."""
    return click.option(
        "--server",
        envvar="LLMGW_SERVER",
        metavar="HOST:PORT",
        callback=_server,
        help=f"The control plane. [default: {SERVER}]",
    )(function)


def hub_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--hub URL`."""
    return click.option(
        "--hub", default=HUB, show_default=True, help="Where hf:// leads; HF_TOKEN is its key."
    )(function)


def document_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o text|json|yaml`."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True
    )(function)


def lines_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o text|jsonl`, of what goes on for a while."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "jsonl"]),
        default="text",
        show_default=True,
        help="jsonl is a JSON document a step on stdout, and the text on stderr.",
    )(function)


def screen_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-o` of what shows the fleet, and `-w`."""
    function = click.option("-w", "--watch", is_flag=True, help="Go on showing it, until Ctrl-C.")(function)
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "wide", "name", "json", "yaml"]),
        default="text",
        show_default=True,
    )(function)


def timers_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--timer NAME=DURATION`, repeatable; every field of `fleet.expiry.Timers`."""
    from llmgw.fleet.expiry import Timers

    names = ", ".join(Timers.__dataclass_fields__)
    return click.option(
        "--timer", "timers", multiple=True, metavar="NAME=DURATION", help=f"Set a timer: {names}."
    )(function)
