"""Mutated catalogs, planned and applied at a live control plane: `python -m tests.lab catalog-fuzz`.

The examples of this repository and the templates of `llmgw init` lie beside the catalog that stands; each
round changes them in one to four places, as slips, merges and broken editors do. The control plane may
plan what is still valid and must refuse the rest, twice, without a word of Python and without any change:
after each refusal its revision, its last event and its engines are those of before. `--n 20000` for all.
"""

import argparse
import pathlib
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence

import httpx

from llmgw.catalog.formatting import formatted
from llmgw.errors import LlmgwError
from tests.lab.command import Outcome
from tests.support.standing import Standing
from tests.support.story import must

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = (ROOT / "catalog", ROOT / "llmgw" / "cli" / "templates" / "catalog")
ROUNDS = 1500
LOOK_EVERY = 100
"""Rounds between two looks at everything; at the revision and the last event after each."""

WORDS = (
    "", "~", "null", "true", "no", "0", "-1", "1e999", ".nan", "0x10", "0123", "12e4567", "99999999999999999999",
    "[]", "{}", "[[]]", "{a: {b: c}}", "&a x", "*a", "!!str x", "<<", "? a", "- a", "|", ">-", "'", '"', "#", "%",
    "@x", "\t", "\ufeff", "\u2028", "\x85", "\x07", "\0", "😀", "é" * 70, "a" * 300, "../..", "file:///", "hf://",
    "http://x", "--port=1", "model", "profile", "vllm", "sglang", "llamacpp", "alpha", "small", "smollm2", "default",
    "80GiB", "2m", "1w", "1 000s", ">=0.21", "==", "yes", "{cores: 1, memory: 1GiB}", "12:30:45", "2001-01-01",
)  # fmt: skip
KEYS = (
    "kind", "name", "engine", "source", "sha256", "profiles", "aliases", "fallbacks", "scaling", "protect", "gpu",
    "cpu", "args", "env", "drain", "start_deadline", "nodes", "gpus_per_node", "tensor_parallel", "max_model_len",
    "node_labels", "min", "max", "memory", "cores", "types", "host", "api-key", "trust-remote-code", "LD_PRELOAD",
    "allow_unsafe_args", "x-y", "<<", "1", "null", "[a]",
)  # fmt: skip

Files = dict[str, str]


def run(argv: Sequence[str]) -> Outcome:
    """`--n` rounds; `--seed` repeats a run."""
    parser = argparse.ArgumentParser(prog="catalog-fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=ROUNDS, help="rounds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, Standing(pathlib.Path(directory)) as standing:
        base = {**standing.files(), **examples()}
        must(standing.post("plan", base).is_success, "the catalog is valid before anybody changes it")
        before, event = standing.proof(), standing.get("status")["event"]
        wrong: list[str] = []
        for number in range(options.n):
            chance = random.Random(f"{options.seed}/{number}")
            files = mutated(base, chance)
            found = refused_or_planned(standing, files, counted)
            if number % LOOK_EVERY == 0 or number == options.n - 1:
                found += format_all(files, counted)
                found += [] if standing.proof() == before else ["what runs has changed"]
            status = standing.get("status")
            if (status["revision"], status["event"]) != (before["revision"], event):
                found.append(f"something happened: event {event} -> {status['event']}")
                event = status["event"]
            wrong += [f"--seed {options.seed}, round {number}: {said}" for said in found]
            if len(wrong) > 5:
                break
        tracebacks = standing.control.err.read_text(errors="replace").count(
            "Traceback (most recent call last)"
        )
        figures = {"rounds": number + 1, "tracebacks": tracebacks, "control_mib": round(standing.mib())}
    if tracebacks:
        wrong.append(f"{tracebacks} tracebacks in the log of the control plane")
    return Outcome(not wrong, dict(counted), figures, "; ".join(wrong[:5]))


def examples() -> Files:
    """Every example, under the name that its directory has in a catalog. Two of them are the default."""
    return {
        f"catalog/{path.relative_to(root).as_posix()}": path.read_text().replace("llama, default", "llama")
        for root in EXAMPLES
        for path in sorted(root.rglob("*.yaml"))
    }


def refused_or_planned(standing: Standing, files: Files, counted: Counter[str]) -> list[str]:
    """What the control plane did wrong about `files`. It applies none that is valid: only plans it."""
    answer = standing.post("plan", files)
    if answer.status_code == httpx.codes.OK:
        counted["planned"] += 1
        return []
    again = standing.post("apply", files)
    counted["refused"] += 1
    codes = (answer.status_code, again.status_code)
    if codes != (422, 422):
        return [f"answered {codes}: {answer.text[:300]}"]
    return [] if answer.json() == again.json() else ["plan and apply refuse it for different reasons"]


def format_all(files: Files, counted: Counter[str]) -> list[str]:
    """What `fmt` did wrong: each file comes back for good, or is refused in words."""
    wrong = []
    for name, text in files.items():
        try:
            new = formatted(name, text.encode())
        except LlmgwError:
            counted["fmt_refused"] += 1
            continue
        counted["formatted"] += 1
        if formatted(name, new) != new:
            wrong.append(f"fmt changes {name} each time")
    return wrong


def mutated(base: Files, chance: random.Random) -> Files:
    """`base` with one to four slips in it."""
    files = dict(base)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        slip = chance.choice(SLIPS)
        name = chance.choice(sorted(files))
        files.update(slip(name, files.pop(name), files, chance))
    return files


def _cut(name: str, text: str, _: Files, chance: random.Random) -> Files:
    return {name: text[: chance.randrange(len(text) + 1)]}


def _removed(_: str, __: str, ___: Files, ____: random.Random) -> Files:
    return {}


def _copied(name: str, text: str, _: Files, __: random.Random) -> Files:
    return {name: text, f"catalog/copy-of-{name.rpartition('/')[2]}": text}


def _joined(name: str, text: str, others: Files, chance: random.Random) -> Files:
    return {
        name: text
        + chance.choice(("", "---\n", "\n"))
        + (chance.choice(sorted(others.values())) if others else "")
    }


def _character(name: str, text: str, _: Files, chance: random.Random) -> Files:
    at = chance.randrange(len(text) + 1)
    put = chance.choice("{}[]:,#&*!|>'\"%@`-? \n\tax0é\0")
    return {name: text[:at] + put + text[at + chance.randrange(2) :]}


def _stretch(name: str, text: str, _: Files, chance: random.Random) -> Files:
    first, last = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
    return {name: text[:first] + chance.choice(("", text[first:last] * 2)) + text[last:]}


def _lines(change: Callable[[list[str], int, random.Random], None]) -> Callable[..., Files]:
    def slip(name: str, text: str, _: Files, chance: random.Random) -> Files:
        lines = text.splitlines() or [""]
        change(lines, chance.randrange(len(lines)), chance)
        return {name: "\n".join(lines) + "\n"}

    return slip


def _drop(lines: list[str], at: int, _: random.Random) -> None:
    del lines[at]


def _repeat(lines: list[str], at: int, _: random.Random) -> None:
    lines.insert(at, lines[at])


def _swap(lines: list[str], at: int, chance: random.Random) -> None:
    other = chance.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _indent(lines: list[str], at: int, chance: random.Random) -> None:
    lines[at] = chance.choice((" ", "  ", "\t", "- ")) + lines[at]


def _value(lines: list[str], at: int, chance: random.Random) -> None:
    key, found, _ = lines[at].partition(":")
    lines[at] = f"{key}{found} {chance.choice(WORDS)}"


def _key(lines: list[str], at: int, chance: random.Random) -> None:
    key, found, value = lines[at].partition(":")
    lines[at] = f"{key[: len(key) - len(key.lstrip())]}{chance.choice(KEYS)}{found}{value}"


def _added(lines: list[str], at: int, chance: random.Random) -> None:
    lines.insert(at, f"{chance.choice(('', '  '))}{chance.choice(KEYS)}: {chance.choice(WORDS)}")


def _letter(lines: list[str], at: int, chance: random.Random) -> None:
    line = lines[at]
    place = chance.randrange(len(line) + 1)
    lines[at] = line[:place] + chance.choice("aeiou-_ ") + line[place + 1 :]


SLIPS: Sequence[Callable[..., Files]] = (
    _cut, _removed, _copied, _joined, _character, _character, _stretch,
    *map(_lines, (_drop, _repeat, _swap, _indent, _value, _value, _value, _key, _added, _added, _letter)),
)  # fmt: skip
