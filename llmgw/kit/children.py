"""The environment of the programs that we run: without our secrets, which are none of their business.

Used wherever a child is started: git, systemctl, an interpreter that is asked, engines.
"""

import os
import re
import shlex
from collections.abc import Mapping

_SECRET = re.compile(r"\w*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_KEY|ACCESS_KEY)")


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a child sees of `inherited`: every variable whose name does not say that it is a secret."""
    return {name: value for name, value in inherited.items() if not _SECRET.match(name)}


def git_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """As `environment`, without what would point git elsewhere (a hook's, say), and with its words in English."""
    kept = {k: v for k, v in environment(inherited).items() if not k.startswith("GIT_")}
    return {**kept, "LC_ALL": "C"}


def git_refusal(said: str) -> str:
    """What to run where git's words say that it reads no repository of another user; empty where they say no such thing."""
    found = re.search(r"dubious ownership in repository at '([^'\n]+)'", said)
    return f"git config --global --add safe.directory {shlex.quote(found[1])}" if found else ""
