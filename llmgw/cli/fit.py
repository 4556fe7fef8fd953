"""`llmgw fit`: would this model fit on that profile, before anything is in the catalog? Changes and fetches nothing."""

import pathlib

import click

from llmgw.cli import names
from llmgw.cli.options import PATH, Size, document_option, hub_option


@click.command()
@click.argument("source")
@click.option(
    "--profile",
    required=True,
    metavar="NAME",
    shell_complete=names.profiles,
    help="A profile of the catalog.",
)
@click.option("--catalog", default="catalog", type=PATH, show_default=True, help="Where profiles are.")
@click.option(
    "--max-model-len", type=click.IntRange(min=1), help="Tokens per request, instead of the profile's."
)
@click.option("--gpu-memory", type=Size(), help="Memory of one card (80GiB), instead of the profile's.")
@hub_option
@document_option
def command(
    source: str,
    profile: str,
    catalog: pathlib.Path,
    max_model_len: int | None,
    gpu_memory: int | None,
    hub: str,
    output: str,
) -> int:
    """Add up what SOURCE needs on each card of a profile, and say what would do if it is too much.

    SOURCE is hf://ORG/NAME[@REVISION][:FILE], http(s)://…, or a directory or GGUF file here. Only the
    files that say what a model is are read, of large ones their first bytes. Weights and KV cache are
    exact, the other terms are estimates. Exit code 1 if it does not fit.

    Example: llmgw fit hf://meta-llama/Llama-3.3-70B-Instruct --profile h100-tp2 --max-model-len 32768
    """
    from llmgw.cli.doing import fit

    return fit.run(source, profile, catalog, max_model_len or 0, gpu_memory or 0, hub, output)
