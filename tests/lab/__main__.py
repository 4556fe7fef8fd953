"""`python -m tests.lab NAME …`."""

import sys

from tests.lab.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
