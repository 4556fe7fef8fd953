"""The JSON Schema of catalog documents, for editors. `llmgw schema` prints it; `schemas/` holds it.

Beside the rules it has what yaml-language-server shows: a text for each field, the order that people
write fields in, and a whole document of each kind to begin with.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from llmgw.catalog.documents import ORDER, CatalogDocument

FILE = "catalog.schema.json"


def text() -> str:
    """The schema of one document of any kind, as the bytes of its file."""
    found = TypeAdapter(CatalogDocument).json_schema()
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llmgw catalog document",
        # One list of all kinds: an editor completes `kind:` from the first level only.
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in KINDS],
        "$defs": {name: _definition(name, about) for name, about in found["$defs"].items()},
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _definition(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """One document with its fields in people's order, each with all that an editor shows."""
    fields = sorted(found["properties"].items(), key=lambda pair: ORDER.index(pair[0]))
    required = sorted(found.get("required", ()), key=ORDER.index)
    properties = {field: _field(about, field in required) for field, about in fields}
    snippets = {"defaultSnippets": [KINDS[name]]} if name in KINDS else {}
    ordered = {"required": required} if required else {}
    title = {"title": KINDS[name]["label"] if name in KINDS else name.removesuffix("Document").lower()}
    return {**found, **title, "properties": properties, **ordered, **snippets}


def _field(found: Mapping[str, Any], required: bool) -> Mapping[str, Any]:
    about = {name: value for name, value in found.items() if name not in ("title", "examples")}
    # A field that may be left out may not be left open.
    if {"type": "null"} in (choices := about.get("anyOf", ())):
        (about["$ref"],) = (choice["$ref"] for choice in choices if "$ref" in choice)
        del about["anyOf"], about["default"]
    # An editor marks a key that is no name only where it is told what names are, not which have values.
    for pattern, value in about.pop("patternProperties", {}).items():
        about["additionalProperties"] = value
        about["propertyNames"] = {"pattern": pattern, **about["propertyNames"]}
    return {**about, "markdownDescription": _markdown(found, required)}


def _markdown(about: Mapping[str, Any], required: bool) -> str:
    """The text, then what a line may hold: default, bounds, examples."""
    said = ["Required." if required else _default(about.get("default"))]
    bounds = [about[name] for name in ("minimum", "exclusiveMinimum", "maximum") if name in about]
    if len(bounds) == 2:
        said.append(f"From {'above ' * ('exclusiveMinimum' in about)}{bounds[0]} to {bounds[1]}.")
    if "examples" in about:
        said.append(f"Such as {', '.join(f'`{_written(example)}`' for example in about['examples'])}.")
    return "\n\n".join([about["description"], " ".join(filter(None, said))]).strip()


def _default(value: object) -> str:
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else f"Default: `{_written(value)}`."


def _written(value: object) -> str:
    """A value as it is written in a catalog."""
    return value if isinstance(value, str) else json.dumps(value)


KINDS: Mapping[str, Mapping[str, Any]] = {
    "ModelDocument": {
        "label": "model",
        "description": "A model: something that clients ask for by name",
        "body": {
            "kind": "model",
            "name": "${1:name}",
            "source": "hf://${2:org}/${3:repository}@${4:commit}",
            "profiles": ["${5:profile}"],
            "scaling": {"min": 1, "max": 1},
        },
    },
    "VllmDocument": {
        "label": "vllm profile",
        "description": "A profile: how to run models with vLLM",
        "body": {
            "kind": "profile",
            "name": "${1:name}",
            "engine": "vllm",
            "nodes": 1,
            "gpus_per_node": 1,
            "gpu": {"memory": "${2:80}GiB"},
            "max_model_len": "^${3:32768}",
        },
    },
    "SglangDocument": {
        "label": "sglang profile",
        "description": "A profile: how to run models with SGLang",
        "body": {
            "kind": "profile",
            "name": "${1:name}",
            "engine": "sglang",
            "nodes": 1,
            "gpus_per_node": 1,
            "gpu": {"memory": "${2:80}GiB"},
            "max_model_len": "^${3:32768}",
        },
    },
    "LlamacppDocument": {
        "label": "llamacpp profile",
        "description": "A profile: how to run models with llama.cpp, here on CPU",
        "body": {
            "kind": "profile",
            "name": "${1:name}",
            "engine": "llamacpp",
            "gpus_per_node": 0,
            "cpu": {"cores": "^${2:4}", "memory": "${3:8}GiB"},
            "max_model_len": "^${4:4096}",
        },
    },
}
"""Document → its name and a whole one to begin with; `^` keeps a number from being quoted."""
