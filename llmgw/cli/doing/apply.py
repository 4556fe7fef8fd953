"""The work of `llmgw apply`, the half of it that `llmgw up` shares, and all of it for `llmgw rollback`."""

import dataclasses
import pathlib
import shlex
from typing import Any

import click

from llmgw.cli import output
from llmgw.cli.asking import agree
from llmgw.cli.client import Client
from llmgw.cli.doing.plan import plan_document
from llmgw.cli.exits import Exit
from llmgw.cli.following import Followed, follow
from llmgw.cli.lines import Lines
from llmgw.cli.options import naming
from llmgw.cli.saved import Saved, load, promised
from llmgw.cli.uploads import Upload, read_upload
from llmgw.errors import Blocked, Failed, Stale
from llmgw.kit.text import count, safe
from llmgw.kit.units import show_bytes
from llmgw.planning.fired import Allowed, options, refusal
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines, summary


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """How it is meant: the plan that was seen, what is allowed of what guards refuse, and how to follow.

    `limit` in seconds. `output` is `text`, or `jsonl` for scripts.
    """

    expect: str = ""
    saved: pathlib.Path | None = None
    allowed: Allowed = frozenset()
    yes: bool = False
    wait: str = "ready"
    limit: float = 1800.0
    message: str = ""
    output: str = "text"


def run(path: pathlib.Path, asked: Asked, server: str | None) -> int:
    """Plan, ask, hand over, follow; returns the exit code."""
    client = Client(server)
    if asked.saved is None:
        return hand_over(client, read_upload(path, "apply"), asked, naming("apply", path))
    saved = load(asked.saved)
    if saved.plan.suppose:
        raise Failed(
            f"cannot apply {saved.plan.id}: it supposes what is not so: {safe(saved.plan.suppose[0])}"
        )
    command = f"llmgw apply --plan {shlex.quote(str(asked.saved))}"
    return hand_over(client, saved.upload, asked, command, saved)


def hand_over(client: Client, upload: Upload, asked: Asked, command: str, saved: Saved | None = None) -> int:
    """Show the plan of these bytes, ask where nobody said which plan is expected, adopt, follow.

    `command` is what was called, for hints. Returns the exit code; raises Blocked, Stale or Declined.
    """
    expect = asked.expect or (saved.plan.digest if saved is not None else "")
    plan: Plan = client.ask(Plan, "/v1/plan", upload.body(expect=expect))
    lines = _shown(plan, asked, command)
    if not expect:
        _check_guards(plan, asked.allowed, command)
        _agree(client, plan, asked, command)
    body = {
        **upload.body(message=asked.message, expect=expect or plan.digest),
        "allowed": sorted(asked.allowed),
        "saved": promised(saved.plan) if saved is not None else None,
    }
    try:
        return _accept(client, body, plan, asked, lines)
    except (Blocked, Stale) as error:
        raise type(error)(error.said, help=_by(command, error.help)) from error


def _shown(plan: Plan, asked: Asked, command: str) -> Lines:
    """Show the plan: on stdout, or to people on stderr and as the first of the lines, where the others follow."""
    lines = Lines(on=asked.output == "jsonl")
    text = plan_lines(plan, width=None if lines.on else output.width(), apply=command, allowed=asked.allowed)
    if lines.on:
        click.echo("\n".join(text), err=True)
        lines.say("plan", summary(plan), plan=plan_document(plan))
    else:
        output.say(text)
    return lines


def _by(command: str, help_: str) -> str:
    """A hint of the control plane, which knows no paths, with the command that was called."""
    seen = command.replace("llmgw apply", "llmgw plan", 1)
    if "--plan" not in command:
        help_ = help_.replace("llmgw apply --expect", f"{safe(command)} --expect")
    return help_.replace("`llmgw plan`", f"`{safe(seen)}`") if command.startswith("llmgw apply") else help_


def accept(client: Client, upload: Upload, plan: Plan, message: str, limit: float) -> int:
    """Hand the catalog over as planned, then follow. Returns the exit code."""
    body = upload.body(message=message, expect=plan.digest)
    return _accept(client, body, plan, Asked(limit=limit, message=message), Lines())


def _accept(client: Client, body: dict[str, Any], plan: Plan, asked: Asked, lines: Lines) -> int:
    done = client.post("/v1/apply", body)
    number = int(done["revision"])
    stands = "stands" if done["new"] else "stands already: nothing to apply"
    click.echo(f"revision {number} {stands}", err=True)
    lines.say("accepted", f"revision {number} {stands}", revision=number, new=bool(done["new"]))
    if asked.wait == "accepted":
        return Exit.DONE
    followed = Followed(number, int(done["event"]), plan if done["new"] else None, whole=not done["new"])
    return _follow(client, followed, asked.limit, lines)


def attach(number: int, limit: float, server: str | None, form: str = "text") -> int:
    """Follow the apply of a revision, 0 = the newest; returns the exit code."""
    client = Client(server)
    told = client.get("/v1/apply", number=number)
    kept = client.get("/v1/revision", number=told["number"])
    for each in (kept["record"] or {}).get("actions", ()):
        click.echo(f"  {safe(each['about'])}  {safe(each['said'])}", err=True)
    status = client.get("/v1/status")
    followed = Followed(int(told["number"]), int(status["event"]), None)
    return _follow(client, followed, limit, Lines(on=form == "jsonl"))


def _follow(client: Client, followed: Followed, limit: float, lines: Lines) -> int:
    try:
        return follow(client, followed, limit, lines)
    except KeyboardInterrupt:
        code = int(Exit.INTERRUPTED)
        lines.say("summary", "detached; the work goes on", revision=followed.number, exit_code=code)
        click.echo(
            f"\nDetached; the work goes on. Follow: llmgw apply --attach {followed.number}"
            "   Undo: llmgw rollback",
            err=True,
        )
        return Exit.INTERRUPTED


def _check_guards(plan: Plan, allowed: Allowed, command: str) -> None:
    """Raise Blocked before anybody is asked; the control plane refuses by the same function."""
    lines = refusal(plan.guards, allowed) if plan.guards else ()
    if not lines:
        return
    reasons = "".join(f"\n  {safe(line)}" for line in lines)
    raise Blocked(
        f"cannot apply {plan.id}: {count(len(lines), 'reason')} against it. Nothing was changed{reasons}",
        help=safe(f"if it is meant: {command} {options(plan.guards)}".rstrip()),
    )


def _agree(client: Client, plan: Plan, asked: Asked, command: str) -> None:
    """Return when the plan may be applied. Raises Declined; nothing was changed then."""
    if asked.yes or (plan.empty and not plan.unplaced):
        return
    cluster = client.get("/v1/status")["cluster"]
    agree(
        f"Apply {plan.id} to {safe(cluster)}? {cost(plan)}",
        way=safe(f"{command} --expect {plan.id} {options(plan.guards)}".rstrip()),
    )


def cost(plan: Plan) -> str:
    """`It starts 2, replaces 1 and stops 3 replicas, fetches 66.7 GB; llama-70b falls to 1 ready on the way.`"""
    kinds = (("starts", ("+", "=>")), ("replaces", ("+/-", "-/+")), ("stops", ("-",)))
    counted = [(word, sum(row.symbol in symbols for row in plan.rows)) for word, symbols in kinds]
    parts = [f"{word} {count(number, 'replica')}" for word, number in counted if number]
    fetched = sum(row.fetch or 0 for row in plan.rows)
    unknown = sum(row.fetch is None for row in plan.rows)
    if fetched or unknown:
        parts.append(f"fetches {show_bytes(fetched)}{f' and {unknown} of unknown size' if unknown else ''}")
    dips = [each for each in plan.service if each.now and each.lowest < each.now]
    lowest = [f"{safe(each.model)} from {each.now} to {each.lowest} ready" for each in dips[:3]]
    if len(dips) > len(lowest):
        lowest.append(f"{len(dips) - len(lowest)} more")
    said = f"It {', '.join(parts)}" if parts else "It starts and stops nothing"
    return f"{said}; on the way {', '.join(lowest)}." if lowest else f"{said}."
