"""The console script `llmgw`: a Ctrl-C ends it without a word from its very first moment, then `cli.main` takes over."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Everything that takes a moment to import comes behind this."""
    from llmgw.cli.main import main as llmgw

    signal.signal(signal.SIGINT, signal.default_int_handler)
    llmgw()
