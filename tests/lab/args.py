"""What is written under `args` and `env` against what an engine sees: `python -m tests.lab args`.

Each text goes the whole way: YAML, the control plane's checks, its plan and its apply, the wire, the engine's
adapter, the agent's own launch (by itself and through the shell that enters a cgroup), and a process that notes
its argv and its environment. The argv must be, byte for byte, what the plan listed before (`plan --explain`
prints it), where only the weights and the program have other names, and what was written. Texts that an engine
would read as a flag, and llmgw's own flags in every spelling of them, must be refused before any of that.
"""

import argparse
import json
import pathlib
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence

import httpx

from llmgw.agent import process
from llmgw.agent.marks import Identity
from llmgw.catalog.engine_facts import FACTS, EngineFacts
from llmgw.catalog.load import check
from llmgw.catalog.model import Profile
from llmgw.engines.registry import ADAPTERS
from llmgw.fleet import events
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import ShardSpec
from llmgw.planning.actions import Assign
from llmgw.wire import messages
from tests.control.plane import Plane
from tests.lab.command import Outcome
from tests.support.waiting import wait_for

TEXTS_AT_LEAST = 320
FLAG, LIST, VARIABLE = "chat-template", "stop-words", "NOTE"
WEIGHTS = "/weights"
MODEL = "kind: model\nname: m\nsource: file:///w\nprofiles: [p]\n"
NOTER = """#!/bin/sh
printf '%s\\0' "$@" >"$0.argv"
env -0 >"$0.env.part" && mv "$0.env.part" "$0.env"
"""
"""The engine: it notes what it was given beside itself."""

WRITTEN = (
    "", " ", "  two  ", "a b", "a\tb", "a\nb", "a\r\nb", "\n", "\\", "\\\\", "\\n", "'", '"', "''", '""', "it's",
    '"quoted"', "'quoted'", "a'b\"c", "$HOME", "${HOME}", "$(id)", "`id`", "$((1+1))", "!!", "!x", "~", "~root", "*",
    "?", "[a-z]", "{a,b}", "{1..9}", "a;b", ";id", "a|b", "|id", "a&b", "&", "&&id", "a>b", ">/tmp/x", "<x", "2>&1",
    "#x", "a #x", "%s", "%n%n", "%%", "@file", "@", "=", "a=b", "=b", "--", "x--port", "port", "x --port 1", "/etc/passwd",
    "../..", "-1", "-0.5", "-1e5", "+1", "0", "00", "0x10", "1e5", "true", "false", "null", "no", "None", "nan", "inf",
    '{"a": 1}', '{"a": "b c"}', '["a", "b"]', '{"x": "--port=1"}', "{{ bos_token }}{% for m in messages %}", "<|im_start|>",
    "é", "日本語", "😀", "e\u0301", "\u202e", "\u200b", "\ufeffx", "\xa0", "\x01", "\x1b[2J", "\x7f", "\x85", "\u2028",
    "a" * 4096, "a" * 100_000, "é" * 30_000, "a,b,c", "a:b", "::", "a\\ b", "C:\\x", "eval", "exec", "$0", "$@", "$*", "\"$@\"",
)  # fmt: skip
REFUSED = (
    "-", "--port", "--port=1", "-p", "-hf", "--", "-x y", "-1x", "--host\n", "a\0b", "\0", "-\0", "--api-key",
)  # fmt: skip
ALPHABETS = (
    " \t\n'\"\\$`!*?[]{}()<>|&;#~%=@^,:-_/.",
    "ab01 \"'\\$",
    "éß😀日\u200f\u0301 a",
    "".join(map(chr, range(1, 256))),
)


def run(argv: Sequence[str]) -> Outcome:
    """Every text on every engine, then every flag."""
    parser = argparse.ArgumentParser(prog="args", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    wrong: list[str] = []
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        for engine in ADAPTERS:
            seen = Seen(pathlib.Path(directory), engine)
            for number, text in enumerate(texts(random.Random(options.seed))):
                wrong += [
                    f"{engine} {text[:60]!r}: {said}"
                    for said in seen.differs(text, in_group=bool(number % 2))
                ]
                counted[f"seen by {engine}"] += 1
            wrong += [
                f"{engine} takes {text[:60]!r}" for text in REFUSED if profile_with(engine, text) is not None
            ]
            counted["texts refused"] += len(REFUSED)
            for flag in spellings(FACTS[engine]):
                counted["flags refused"] += 1
                if "E211" not in refusal(engine, flag) and "E212" not in refusal(engine, flag):
                    wrong.append(f"{engine} takes the flag {flag!r}: {refusal(engine, flag)}")
    return Outcome(not wrong, dict(counted), {"wrong": len(wrong)}, "; ".join(wrong[:10]))


def texts(chance: random.Random) -> Iterator[str]:
    """What people wrote, and what nobody would, until there are enough."""
    found = list(WRITTEN)
    found.remove("--")  # a flag: it is among those that are refused
    while len(found) < TEXTS_AT_LEAST:
        text = "".join(chance.choice(chance.choice(ALPHABETS)) for _ in range(chance.randrange(1, 40)))
        if not text.startswith("-"):
            found.append(text)
    yield from found


def document(engine: str, **fields: object) -> bytes:
    """A profile on CPU; JSON is YAML, but for characters beyond 16 bits."""
    whole = {
        "kind": "profile",
        "name": "p",
        "engine": engine,
        "gpus_per_node": 0,
        "cpu": {"cores": 1, "memory": "1GiB"},
        **fields,
    }
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in whole.items())
    return _PAIR.sub(_one_escape, text).encode()


_PAIR = re.compile(r"\\u(d[89ab]..)\\u(d[cdef]..)")


def _one_escape(pair: re.Match[str]) -> str:
    code = 0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + (int(pair[2], 16) - 0xDC00)
    return f"\\U{code:08x}"


def profile_with(engine: str, text: str) -> Profile | None:
    """The profile that holds `text` in each place where a text may stand; None where it is refused."""
    arguments = {FLAG: text, LIST: [text, "after", text]}
    checked = check({"p.yaml": document(engine, args=arguments, env={VARIABLE: text})})
    return None if checked.catalog is None else checked.catalog.profiles["p"]


def plan_and_apply(directory: pathlib.Path, engine: str, text: str) -> tuple[list[str], ShardSpec] | None:
    """The command line that a plan lists for a model with this profile, and the shard that its apply assigns.

    None where the control plane refuses to plan it.
    """
    arguments = {FLAG: text, LIST: [text, "after", text]}
    profile = document(engine, args=arguments, env={VARIABLE: text}).decode()
    body = {"files": {"m.yaml": MODEL, "p.yaml": profile}}
    with tempfile.TemporaryDirectory(dir=directory) as state:
        plane = Plane(pathlib.Path(state))
        plane.hears(events.Registered(NodeInfo("n0", "n0", engines=None)))
        status, plan = plane.call("POST", "/v1/plan", body)
        if status != httpx.codes.OK:
            return None
        [row] = [row for row in plan["rows"] if row["symbol"] == "+"]
        [words] = row["commands"]
        plane.call("POST", "/v1/apply", {**body, "expect": plan["digest"]})
        plane.loop.decide()
    [spec] = [action.spec for action in plane.sent if isinstance(action, Assign)]
    return words, spec


class Seen:
    """What the noting engine sees of a profile."""

    def __init__(self, directory: pathlib.Path, engine: str) -> None:
        self._engine, self._directory = engine, directory
        program = ADAPTERS[engine].programs[0]
        self._program = directory / program
        self._program.write_text(NOTER)
        self._program.chmod(0o755)
        self._group = directory / f"group-{engine}"
        self._group.mkdir()
        (self._group / "cgroup.procs").touch()

    def differs(self, text: str, *, in_group: bool) -> Iterator[str]:
        """In what the process saw something else than was built, or than was written."""
        planned = plan_and_apply(self._directory, self._engine, text)
        if planned is None:
            yield "it is refused"
            return
        words, spec = planned
        line = ADAPTERS[self._engine].command(carried(spec), WEIGHTS, str(self._program))
        argv, environment = self._launched(line, in_group=in_group)
        if argv != [(WEIGHTS if word == "WEIGHTS" else word).encode() for word in words[1:]]:
            yield f"the plan listed {words[1:]}, seen {argv}"
        if words[words.index(f"--{FLAG}") + 1] != text:
            yield "the flag has another value"
        at = words.index(f"--{LIST}")
        if words[at + 1 : at + 4] != [text, "after", text]:
            yield "the list has other values"
        if f"{VARIABLE}={text}".encode() not in environment:
            yield "the variable has another value"

    def _launched(self, line: process.CommandLine, *, in_group: bool) -> tuple[list[bytes], list[bytes]]:
        notes = [self._program.with_name(f"{self._program.name}.{kind}") for kind in ("argv", "env")]
        for note in notes:
            note.unlink(missing_ok=True)
        environment = process.environment({"PATH": "/usr/bin:/bin"}, line, {}, ())
        group = str(self._group) if in_group else ""
        leader = process.launch(line, environment, Identity("cookie"), self._directory / "log", group)
        try:
            wait_for(notes[1].exists, "the engine has noted what it saw")
        finally:
            leader.close()
        argv, variables = (note.read_bytes().split(b"\0")[:-1] for note in notes)
        return argv, variables


def carried(spec: ShardSpec) -> ShardSpec:
    """`spec` as the agent gets it from the wire."""
    found = messages.decode_down(messages.encode(messages.Assign(epoch=1, seq=1, spec=spec)))
    assert isinstance(found, messages.Assign)
    return found.spec


def spellings(facts: EngineFacts) -> Iterator[str]:
    """Every way to write a flag that llmgw owns, or that has power, which the engine's parser would take."""
    taken = {*facts.owned, *facts.power}
    for name in sorted(taken):
        ways = [name]
        if facts.abbreviates:
            ways += [name[:length] for length in range(1, len(name))]
        for way in dict.fromkeys(ways):
            if way.rstrip("-") and way not in facts.exact:
                yield from dict.fromkeys((way, way.replace("-", "_"), f"no-{way}", f"no_{way}", f"{way}.x"))


def refusal(engine: str, flag: str) -> list[str]:
    """The codes that a flag gets."""
    checked = check({"p.yaml": document(engine, args={flag: "x"})})
    return [problem.code for problem in checked.diagnostics]
