"""The work of `llmgw fit`: read the catalog and the model's small files, add up, print."""

import asyncio
import dataclasses
import os
import pathlib

import click

from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.fitting import card_of, fit
from llmgw.catalog.hub import Hub
from llmgw.catalog.load import load
from llmgw.catalog.model import Catalog, Profile
from llmgw.catalog.sources import Source, parse
from llmgw.catalog.suggest import did_you_mean
from llmgw.cli.documents import document
from llmgw.cli.exits import Exit
from llmgw.cli.places import look_for_catalog
from llmgw.cli.sums import fit_document, fit_lines
from llmgw.errors import Failed
from llmgw.kit.text import safe
from llmgw.transport.facts import facts_of
from llmgw.transport.ranges import CannotRead


def run(
    source: str,
    profile: str,
    catalog: pathlib.Path,
    max_model_len: int,
    gpu_memory: int,
    hub: str,
    output: str,
) -> int:
    """Print the sum and the verdict; returns the exit code. 0 stands for what was not given."""
    look_for_catalog(catalog, "find profiles in")
    known = load(catalog)
    chosen = _profile(known, profile, catalog)
    if max_model_len:
        chosen = dataclasses.replace(chosen, max_model_len=max_model_len)
    if not card_of(chosen, gpu_memory):
        raise click.UsageError(
            f"profile {profile} does not say how large its cards are: --gpu-memory is needed"
        )
    meant = source_of(source)
    found = fit(known, chosen, _facts(meant, hub), gpu_memory)
    if output != "text":
        click.echo(document("fit", fit_document(found, meant.canonical), output))
    else:
        for line in fit_lines(found):
            click.echo(line)
    return Exit.DONE if found.fits else Exit.FAILED


def _profile(catalog: Catalog, name: str, path: pathlib.Path) -> Profile:
    if name in catalog.profiles:
        return catalog.profiles[name]
    said = f"no profile in {path} is called {name!r}"
    raise click.UsageError(": ".join(filter(None, (said, did_you_mean(name, tuple(catalog.profiles))))))


def source_of(text: str) -> Source:
    """The source that `text` names; freer than a catalog: a path, a missing revision, http without a digest."""
    scheme, remote, rest = text.partition("://")
    if not remote:
        return Source("file", f"file://{pathlib.Path(text).absolute()}")
    if scheme == "http":
        return Source("http", text)
    if scheme == "hf" and "@" not in rest:
        repository, colon, files = rest.partition(":")
        text = f"hf://{repository}@main{colon}{files}"
    try:
        return parse(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _facts(source: Source, hub: str) -> ModelFacts:
    try:
        return asyncio.run(facts_of(source, Hub(hub.rstrip("/"), os.environ.get("HF_TOKEN", ""))))
    except CannotRead as error:
        raise Failed(f"cannot look into {safe(source.canonical)}: {error}") from error
