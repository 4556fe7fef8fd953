"""The command `llmgw`: finds the verb, runs it, and turns every error into a sentence and an exit code.

Verbs live one a file beside this one. Such a file holds what the verb is called with and its help, and
imports little; the callback imports the module of the same name in `doing`, which does the work. So
`--help` and completion stay quick.
"""

import importlib
import os
import sys

import click

from llmgw.cli.exits import Exit, of_error
from llmgw.cli.output import COLOR, plain_forms
from llmgw.errors import LlmgwError

VERBS: dict[str, str] = {
    "up": "Everything in one process on this machine: the way to try it.",
    "init": "Begin a catalog repository: an example, settings for editors, hooks.",
    "validate": "Check a catalog, offline.",
    "fmt": "Lay out catalog files in the one way.",
    "fit": "Would a model fit on a profile, before anything is in the catalog?",
    "plan": "Show what would happen, in order, and why.",
    "apply": "Plan, show, ask, apply, follow.",
    "history": "Every apply that is kept; `history show N` is one of them, whole.",
    "show": "A revision, or a plan that was saved.",
    "rollback": "Apply an earlier revision again, planned and asked like any other.",
    "hold": "Adopt nothing that is followed, with a reason, until it is released.",
    "release": "End a hold.",
    "status": "One screen: what stands, what is outstanding, who is there.",
    "replicas": "Every replica, with the progress of its fetch.",
    "nodes": "Every node, with what it has and what is free.",
    "models": "Every model, with its ready count.",
    "events": "What happened, newest last; -w follows.",
    "logs": "What an engine said; -f follows, --previous is the one before.",
    "why": "Why a model, a replica, a node or a gateway is as it is.",
    "node": "Cordon, drain or forget a node.",
    "pause": "Leave a model alone, with a reason; what runs goes on.",
    "resume": "End a pause.",
    "retry": "Try a model again that waits after failed starts.",
    "ci": "For workflows: the sticky comment of a pull request, the plan that was reviewed.",
    "fleet": "The fleet as a file, to plan against where the control plane cannot be reached.",
    "gc": "List weights that nothing wants; --collect asks the nodes to remove exactly those.",
    "engine-check": "Run the engines' own version commands on a node, on purpose.",
    "token": "Who may join the fleet and ask the control plane: make, list, revoke tokens.",
    "serve": "The control plane of a fleet.",
    "agent": "The agent of one node.",
    "gateway": "The front door: OpenAI's API over the ready replicas.",
    "doctor": "What a person would check, checked.",
    "version": "Releases: this command's, the control plane's, agents', gateways'.",
    "completion": "Make a shell complete verbs, options and names.",
    "unit": "The systemd unit of one of the processes.",
    "schema": "The JSON Schema of catalog files.",
}
"""Verb → its one line of help, in the order people read them."""


class Verbs(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"llmgw.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        command.name = cmd_name
        if COLOR not in command.params:
            command.params.append(COLOR)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from llmgw.catalog.suggest import did_you_mean

            said = f"{error.message} {did_you_mean(args[0], VERBS)}".rstrip()
            raise click.UsageError(said, error.ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(
    cls=Verbs, context_settings={"auto_envvar_prefix": "LLMGW", "help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="llmgw")
def cli() -> None:
    """Keep a fleet of GPU machines serving exactly the LLMs that a catalog in git asks for."""


def main() -> None:
    """The console script, by way of `cli.entry`."""
    plain_forms(os.environ)
    if sys.stdout is None:  # closed by whoever called
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line. Returns its exit code; prints errors on stderr, never a traceback."""
    try:
        done = cli.main(arguments, prog_name="llmgw", standalone_mode=False, terminal_width=_help_width())
        sys.stdout.flush()
        return int(done or Exit.DONE)
    except click.exceptions.Exit as error:
        return error.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit:  # click's own: after a completion, and where the reader of a pipe is gone
        if "_LLMGW_COMPLETE" in os.environ:
            raise
        return _failed(BrokenPipeError(), arguments)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug becomes a file and exit 70
        return _failed(error, arguments)


def _failed(error: Exception, arguments: list[str]) -> int:
    """Say what failed: to people on stderr, and on stdout where a document was asked for. Returns the exit code."""
    from llmgw.cli.failures import failure, form_asked
    from llmgw.cli.surroundings import outcome

    verb = arguments[0] if arguments else ""
    if isinstance(error, OSError) and (ended := outcome(error, verb)) is not None:
        return ended
    code, said, help_ = _told(error)
    form = form_asked(arguments, os.environ)
    if form and code != Exit.INTERRUPTED and not (isinstance(error, LlmgwError) and error.answered):
        click.echo(failure(form, code, said, help_, error))
    return code


def _told(error: Exception) -> tuple[Exit, str, str]:
    """The exit code of an error, with what is said of it and what would help; said on stderr."""
    match error:
        case click.Abort():
            click.echo("", err=True)
            if isinstance(error.__cause__, KeyboardInterrupt):
                return Exit.INTERRUPTED, "", ""
            return Exit.DECLINED, "cannot go on: nobody answered the question", ""
        case click.ClickException():
            error.show()
            return (
                Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED,
                error.format_message(),
                "",
            )
        case LlmgwError():
            from llmgw.kit.text import safe

            click.echo("\n".join(map(safe, f"error: {error}".split("\n"))), err=True)
            return of_error(error), error.said, error.help
        case _:
            return Exit.BUG, "cannot go on: this is a bug in llmgw", _bug()


def _help_width() -> int:
    """Columns that help is wrapped to. As click has it; what click asks loads every archive format."""
    told = os.environ.get("COLUMNS", "")
    try:
        wide = int(told) if told.isdecimal() and int(told) else os.get_terminal_size(1).columns
    except OSError:
        wide = 80
    return max(min(wide, 80) - 2, 50)


def _bug() -> str:
    """Keep the traceback where it can be sent to us; say where."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="llmgw-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    help_ = f"report it with {file.name}"
    click.echo(f"error: cannot go on: this is a bug in llmgw\n  help: {help_}", err=True)
    return help_
