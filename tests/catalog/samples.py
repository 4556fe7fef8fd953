"""Documents that tests change one thing of."""

from collections.abc import Mapping

from llmgw.catalog.load import Checked, check, load_files
from llmgw.catalog.model import Catalog

MODEL = """\
kind: model
name: llama
source: hf://meta-llama/Llama-3.3-70B-Instruct@6f6073b
profiles: [h100-tp4]
"""
PROFILE = """\
kind: profile
name: h100-tp4
engine: vllm
gpus_per_node: 4
"""


def catalog(*documents: str) -> Catalog:
    """The valid catalog of these documents."""
    return load_files(named(*documents))


def checked(*documents: str) -> Checked:
    """What comes of these documents, valid or not."""
    return check(named(*documents))


def named(*documents: str) -> Mapping[str, bytes]:
    """Documents as files, in this order."""
    return {f"{number:03}.yaml": text.encode() for number, text in enumerate(documents)}


def codes(*documents: str) -> list[str]:
    """The codes of what is wrong with these documents, by place."""
    return [problem.code for problem in checked(*documents).diagnostics]
