"""Exit codes: a contract. One enum, and the one place where errors become codes."""

import enum

from llmgw.errors import Blocked, CatalogInvalid, Declined, Failed, LlmgwError, NotAllowed, Stale, Unreachable


class Exit(enum.IntEnum):
    """What a verb's exit says to a script."""

    DONE = 0
    FAILED = 1
    CHANGES = 2
    INVALID = 3
    BLOCKED = 4
    STALE = 5
    DECLINED = 6
    FAIL_ON = 7
    TIMEOUT = 8
    USAGE = 64
    UNREACHABLE = 69
    BUG = 70
    NOT_ALLOWED = 77
    INTERRUPTED = 130


_OF_ERROR: dict[type[LlmgwError], Exit] = {
    CatalogInvalid: Exit.INVALID,
    Blocked: Exit.BLOCKED,
    Stale: Exit.STALE,
    Declined: Exit.DECLINED,
    Unreachable: Exit.UNREACHABLE,
    NotAllowed: Exit.NOT_ALLOWED,
    Failed: Exit.FAILED,
}


def of_error(error: LlmgwError) -> Exit:
    """The code of an error, by its class or the nearest parent that has one."""
    return next((_OF_ERROR[kind] for kind in type(error).__mro__ if kind in _OF_ERROR), Exit.FAILED)
