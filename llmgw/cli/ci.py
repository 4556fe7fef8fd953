"""`llmgw ci`: what a workflow of GitHub does with a plan. `llmgw init --ci github` writes one that uses it.

It reads what GitHub's runners set: GITHUB_TOKEN, GITHUB_REPOSITORY, GITHUB_EVENT_PATH, GITHUB_SHA,
GITHUB_API_URL. A comment counts only if its author is the user of that very token.
"""

import pathlib

import click

from llmgw.cli.options import PATH


@click.group()
def command() -> None:
    """The plan of a pull request: one comment that is kept current, and what was reviewed in it."""


@command.command()
@click.argument("file", type=PATH)
@click.option("--pr", type=click.IntRange(min=1), help="The pull request. [default: that of the event]")
def comment(file: pathlib.Path, pr: int | None) -> None:
    """Put FILE (`llmgw plan -o markdown`) on the pull request, over what was there.

    There is one comment a cluster; it is found by its hidden header, and only among our own.
    """
    from llmgw.cli.doing import ci

    ci.comment(file, pr)


@command.command("plan-id")
@click.option("--sha", help="The merge commit. [default: GITHUB_SHA]")
@click.option("--cluster", default="", help="Of which cluster, where a pull request has comments of several.")
def plan_id(sha: str | None, cluster: str) -> None:
    """Print the digest of the plan that was reviewed in the pull request of a merge commit.

    For `llmgw apply --expect`. Exit 4 where there is none of ours, or where the comment was cut: nobody has
    seen that plan whole.
    """
    from llmgw.cli.doing import ci

    ci.plan_id(sha, cluster)
