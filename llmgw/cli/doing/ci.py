"""The work of `llmgw ci`: one comment a cluster on a pull request, and the digest that stands in it."""

import os
import pathlib

import click

from llmgw.cli.github import Comment, GitHub
from llmgw.errors import Blocked, Failed
from llmgw.kit.text import count, safe
from llmgw.planning.markdown import LIMIT, Header, read_header
from llmgw.transport.sockets import reason


def comment(file: pathlib.Path, number: int | None) -> None:
    """Write the comment, or rewrite the one that is there."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot read {file}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"cannot read {file}: it is no text") from error
    header = read_header(text)
    if header is None or len(text) > LIMIT:
        raise Failed(
            f"cannot post {file}: it is no comment of a plan", help="llmgw plan --also markdown:FILE"
        )
    github = GitHub()
    number = number or github.pull_request()
    mine = [
        each
        for each in github.own_comments(number)
        if (found := read_header(each.body)) is not None and found.cluster == header.cluster
    ]
    if mine:
        github.rewrite(mine[-1].id, text)
    else:
        github.write(number, text)
    click.echo(f"{'rewrote the' if mine else 'wrote a'} comment on pull request {number}", err=True)


def plan_id(sha: str | None, cluster: str) -> None:
    """Print the reviewed digest. Raises Blocked where nothing was reviewed."""
    commit = sha or os.environ.get("GITHUB_SHA", "")
    if not commit:
        raise Failed("cannot tell which commit: GITHUB_SHA is not set", help="name it with --sha")
    github = GitHub()
    requests = github.merged_as(commit)
    if len(requests) != 1:
        raise Blocked(
            f"cannot tell what was reviewed: {count(len(requests), 'merged pull request')} made {safe(commit[:12])}",
            help="apply by hand: llmgw plan, then llmgw apply",
        )
    click.echo(_reviewed(list(github.own_comments(requests[0])), requests[0], cluster).digest)


def _reviewed(comments: list[Comment], number: int, cluster: str) -> Header:
    """The header of the newest comment that counts."""
    headers = [header for each in comments if (header := read_header(each.body)) is not None]
    found = [header for header in headers if not cluster or header.cluster == cluster]
    where = f"pull request {number}"
    if len({header.cluster for header in found}) > 1:
        raise Blocked(
            f"cannot tell which plan: {where} has comments of several clusters", help="--cluster NAME"
        )
    if not found:
        raise Blocked(
            f"cannot tell what was reviewed: {where} has no comment of ours with a plan",
            help="apply by hand: llmgw plan, then llmgw apply",
        )
    if found[-1].truncated:
        raise Blocked(
            f"cannot take {where} for a review: its plan was too long for a comment, nobody saw it whole",
            help="apply by hand: llmgw plan, then llmgw apply",
        )
    return found[-1]
