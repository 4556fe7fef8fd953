"""The environment of the programs that we run: without our secrets, which are none of their business.

Used wherever a child is started: git, systemctl, an interpreter that is asked, engines.
"""

import os
import re
from collections.abc import Mapping

_SECRET = re.compile(r"\w*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_KEY|ACCESS_KEY)")


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a child sees of `inherited`: every variable whose name does not say that it is a secret."""
    return {name: value for name, value in inherited.items() if not _SECRET.match(name)}


def git_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """As `environment`, without what would point git elsewhere (a hook's, say), and with its words in English."""
    kept = {k: v for k, v in environment(inherited).items() if not k.startswith("GIT_")}
    return {**kept, "LC_ALL": "C"}
