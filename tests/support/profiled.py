"""`python -m tests.support.profiled FILE /path/of/llmgw ARGS…`: llmgw under cProfile, its figures in FILE at the end.

For labs with `--profile`: where the time of a process went that was measured.
"""

import cProfile
import sys

from llmgw.cli.main import run


def wrapper(file: str | None) -> tuple[str, ...]:
    """What a process is started by way of to be profiled; nothing without a file."""
    return (sys.executable, "-m", "tests.support.profiled", file) if file else ()


def main(argv: list[str]) -> int:
    """Run llmgw; its exit code."""
    file, _, *arguments = argv
    profile = cProfile.Profile()
    try:
        return profile.runcall(run, arguments)
    finally:
        profile.dump_stats(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
