"""The few calls of GitHub's API that `llmgw ci` makes. Errors are sentences; the token is never in one."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from llmgw.errors import Failed, NotAllowed
from llmgw.kit.state_files import from_json
from llmgw.kit.text import safe

API = "https://api.github.com"
BOT = "github-actions[bot]"
"""Who a workflow's own token writes as; such a token may not ask who it is."""
PAGES = 50
"""Pages of a hundred comments that are looked through."""
SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Comment:
    """A comment of ours."""

    id: int
    body: str


class GitHub:
    """One repository, as one token sees it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        token, self.repository = _need(environment, "GITHUB_TOKEN"), _need(environment, "GITHUB_REPOSITORY")
        self._environment = environment
        self._http = httpx.Client(
            base_url=environment.get("GITHUB_API_URL") or API,
            headers={
                "authorization": f"Bearer {token}",
                "accept": "application/vnd.github+json",
                "x-github-api-version": "2022-11-28",
            },
            timeout=SECONDS,
        )

    def pull_request(self) -> int:
        """The pull request of the event that runs us."""
        path = pathlib.Path(_need(self._environment, "GITHUB_EVENT_PATH"))
        try:
            event = from_json(path.read_bytes())
            return int(event["pull_request"]["number"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failed(
                f"cannot tell which pull request: {path} is of none", help="name it with --pr"
            ) from error

    def merged_as(self, sha: str) -> list[int]:
        """The merged pull requests whose merge made commit `sha`."""
        found = self._get(f"/repos/{self.repository}/commits/{sha}/pulls")
        return [
            int(each["number"])
            for each in found
            if each.get("merged_at") and each.get("merge_commit_sha") == sha
        ]

    def own_comments(self, number: int) -> Iterator[Comment]:
        """Comments of the pull request whose author is this token's user, oldest first."""
        me = self.user()
        path = f"/repos/{self.repository}/issues/{number}/comments"
        for page in range(1, PAGES + 1):
            found = self._get(path, per_page=100, page=page)
            for each in found:
                if each.get("user", {}).get("login") == me:
                    yield Comment(int(each["id"]), str(each.get("body") or ""))
            if len(found) < 100:
                return

    def user(self) -> str:
        """Who this token writes as."""
        answer = self._ask("GET", "/user")
        if answer.status_code == 403:
            return BOT
        return str(_ok(answer)["login"])

    def write(self, number: int, body: str) -> None:
        """A new comment."""
        _ok(self._ask("POST", f"/repos/{self.repository}/issues/{number}/comments", json={"body": body}))

    def rewrite(self, comment: int, body: str) -> None:
        """Another text for a comment."""
        _ok(self._ask("PATCH", f"/repos/{self.repository}/issues/comments/{comment}", json={"body": body}))

    def _get(self, path: str, **query: int) -> Any:
        return _ok(self._ask("GET", path, params=query))

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **more)
        except httpx.TransportError as error:
            raise Failed(f"cannot reach GitHub at {self._http.base_url}: {error}") from error


def _ok(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json()
    try:
        said = safe(str(answer.json()["message"]))
    except (ValueError, KeyError, TypeError):
        said = "no reason given"
    asked = f"{answer.request.method} {answer.request.url.path}"
    if answer.status_code in (401, 403):
        raise NotAllowed(
            f"cannot {asked}: GitHub says {answer.status_code}: {said}",
            help="permissions: pull-requests: write",
        )
    raise Failed(f"cannot {asked}: GitHub says {answer.status_code}: {said}")


def _need(environment: Mapping[str, str], name: str) -> str:
    if value := environment.get(name):
        return value
    raise Failed(f"cannot ask GitHub: {name} is not set", help="run it in a workflow, or set it")
