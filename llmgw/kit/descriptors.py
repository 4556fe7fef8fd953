"""How many files and sockets this process may have open. Used by the processes that many connect to."""

import resource


def raise_limit() -> None:
    """A shell's usual 1024 files are 500 streams or 1000 agents: take as many as we may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit() -> int | None:
    """Open files that are allowed now; None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
