"""`llmgw completion`: what makes a shell complete verbs, options and names."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--install", is_flag=True, help="Write it where this shell looks for it.")
def command(shell: str, install: bool) -> None:
    """Print the completion script of SHELL, or write it to its usual place.

    \b
    bash   eval "$(llmgw completion bash)" in ~/.bashrc, or --install
    zsh    --install, with ~/.zfunc in fpath before compinit
    fish   --install

    Names of models and profiles come from the files below ./catalog, those of nodes and replicas from what
    the last command heard. A TAB never asks the network.
    """
    from llmgw.cli.doing import completion

    completion.run(shell, install)
