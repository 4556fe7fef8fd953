"""The JSON Schema of catalog documents, for editors. `llmgw schema` prints it; `schemas/` holds it."""

import json

from pydantic import TypeAdapter

from llmgw.catalog.documents import CatalogDocument

FILE = "catalog.schema.json"


def text() -> str:
    """The schema of one document of any kind, as the bytes of its file."""
    schema = TypeAdapter(CatalogDocument).json_schema()
    schema.pop("discriminator")  # its mapping nests, which no reader of OpenAPI's keyword expects
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llmgw catalog document",
        **schema,
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"
