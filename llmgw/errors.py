"""The root of every error that a person meets.

Raised anywhere below `cli`; `cli.main` prints it and turns its class into an exit code.

    LlmgwError
    ├── CatalogInvalid     the catalog has problems, each with its place        exit 3
    ├── Blocked            a guard refused; nothing was changed                  exit 4
    ├── Stale              the world moved since the plan; nothing was changed   exit 5
    ├── Declined           nobody said yes; nothing was changed                  exit 6
    ├── Unreachable        the control plane does not answer                     exit 69
    ├── NotAllowed         the token does not permit this                        exit 77
    └── Failed             it was tried and did not work                         exit 1
"""


class LlmgwError(Exception):
    """Something a person can act on: what cannot be done, why, and what would help.

    `said` is one sentence that starts with "cannot …"; `help` is one imperative, or empty. `answered` =
    stdout has said already what a script reads of it.
    """

    answered = False

    def __init__(self, said: str, *, help: str = "") -> None:  # noqa: A002 - the word people read
        super().__init__(said)
        self.said = said
        self.help = help

    def __str__(self) -> str:
        return f"{self.said}\n  help: {self.help}" if self.help else self.said


class CatalogInvalid(LlmgwError):
    """The catalog was refused as a whole; its problems are in `catalog.diagnostics`."""


class Blocked(LlmgwError):
    """A guard refused. Nothing was changed."""


class Stale(LlmgwError):
    """The plan is no longer the one that was shown. Nothing was changed."""


class Declined(LlmgwError):
    """Nobody said yes, or there was nobody to ask. Nothing was changed."""


class Unreachable(LlmgwError):
    """The control plane does not answer."""


class NotAllowed(LlmgwError):
    """The caller may not do this."""


class Failed(LlmgwError):
    """It was tried and did not work."""
