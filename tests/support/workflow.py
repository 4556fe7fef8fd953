"""Runs the jobs of a workflow file as GitHub's runner does, as far as ours needs it: `run` steps by `bash -e`.

Expressions are paths in `github` and `vars`, text in quotes, and `||`. Actions (`uses`) are the caller's business:
it hands over a directory that is checked out.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """How a job ended: the exit code of its last step, and all that was printed."""

    code: int
    said: str
    steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow file, and what its expressions know."""

    path: pathlib.Path
    known: Mapping[str, Any]

    def run(self, job: str, directory: pathlib.Path, environment: Mapping[str, str]) -> Ran:
        """Run the job's steps in `directory`, until one fails."""
        document = YAML(typ="safe").load(self.path.read_text())
        found = document["jobs"][job]
        told = {**self._filled(document.get("env")), **self._filled(found.get("env"))}
        said, steps, code = "", 0, 0
        for step in found["steps"]:
            if "run" not in step:
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", self.filled(step["run"])],
                cwd=directory,
                env={**os.environ, **environment, **told},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=120,
            )
            said, steps, code = said + done.stdout, steps + 1, done.returncode
            if code:
                break
        return Ran(code, said, steps)

    def filled(self, text: str) -> str:
        """`text` with its expressions replaced."""
        return _EXPRESSION.sub(lambda match: self._value(match[1]), text)

    def _filled(self, given: Mapping[str, Any] | None) -> dict[str, str]:
        return {name: self.filled(str(value)) for name, value in (given or {}).items()}

    def _value(self, expression: str) -> str:
        for part in expression.split("||"):
            if value := self._one(part.strip()):
                return value
        return ""

    def _one(self, part: str) -> str:
        if part.startswith("'"):
            return part.strip("'")
        found: Any = self.known
        for name in part.split("."):
            found = found.get(name, "") if isinstance(found, Mapping) else ""
        return str(found).lower() if isinstance(found, bool) else str(found)
