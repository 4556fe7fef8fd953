"""GitHub's API as far as `llmgw ci` asks it, on loopback: comments with authors, merged pull requests, pages.

It refuses what the real one refuses: no token, a token's own name where a workflow's token asks for it, a
comment that is too long. Whatever was asked is kept.
"""

import contextlib
import dataclasses
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

LIMIT = 65_536
BOT = "github-actions[bot]"


@dataclasses.dataclass
class Comment:
    """One comment of a pull request."""

    id: int
    author: str
    body: str


@dataclasses.dataclass
class StandIn:
    """One repository. `tokens` → who writes with it; the workflow's own may not ask who it is."""

    repository: str = "acme/models"
    tokens: dict[str, str] = dataclasses.field(default_factory=lambda: {"ours": BOT})
    comments: dict[int, list[Comment]] = dataclasses.field(default_factory=dict)
    merged: dict[int, str] = dataclasses.field(default_factory=dict)
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    asked: list[str] = dataclasses.field(default_factory=list)
    address: str = ""

    def says(self, number: int, author: str, body: str) -> Comment:
        """Somebody comments."""
        comment = Comment(sum(map(len, self.comments.values())) + 1, author, body)
        self.comments.setdefault(number, []).append(comment)
        return comment

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:  # noqa: PLR0911 - one a route
        """(status, JSON) of one call."""
        where = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(where.query))
        self.asked.append(f"{method} {where.path}")
        if where.path in self.files:
            return 200, self.files[where.path]
        if token not in self.tokens:
            return 401, {"message": "Bad credentials"}
        me = self.tokens[token]
        if where.path == "/user":
            return (
                (403, {"message": "Resource not accessible by integration"})
                if me == BOT
                else (200, {"login": me})
            )
        if not where.path.startswith(f"/repos/{self.repository}/"):
            return 404, {"message": "Not Found"}
        rest = where.path.removeprefix(f"/repos/{self.repository}")
        if body is not None and len(body.get("body", "")) > LIMIT:
            return 422, {"message": "Body is too long (maximum is 65536 characters)"}
        if found := re.fullmatch(r"/issues/(\d+)/comments", rest):
            return self._comments(method, int(found[1]), me, query, body)
        if (found := re.fullmatch(r"/issues/comments/(\d+)", rest)) and method == "PATCH":
            for comment in (each for listed in self.comments.values() for each in listed):
                if comment.id == int(found[1]):
                    if comment.author != me:
                        return 403, {"message": "Must have admin rights to Repository."}
                    comment.body = body["body"]
                    return 200, _shown(comment)
        if found := re.fullmatch(r"/commits/(\w+)/pulls", rest):
            return 200, [
                {"number": number, "merged_at": "2026-01-01T00:00:00Z", "merge_commit_sha": sha}
                for number, sha in self.merged.items()
                if sha == found[1]
            ]
        return 404, {"message": "Not Found"}

    def _comments(
        self, method: str, number: int, me: str, query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        if method == "POST":
            return 201, _shown(self.says(number, me, body["body"]))
        size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
        return 200, list(map(_shown, self.comments.get(number, [])))[size * (page - 1) : size * page]


def _shown(comment: Comment) -> dict[str, Any]:
    return {"id": comment.id, "body": comment.body, "user": {"login": comment.author}}


@contextlib.contextmanager
def serving(found: StandIn) -> Iterator[StandIn]:
    """Answer on loopback until the end of the block; `address` is where."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            status, said = found.answer(self.command, self.path, token, body)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - the names they are called by

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
