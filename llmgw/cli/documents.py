"""JSON and YAML as scripts get them: one document with its kind and its version. Used by every screen."""

import io
import json
from collections.abc import Mapping
from typing import Any

import ruamel.yaml

FORMAT_VERSION = "1.0"
"""Minor: readers ignore keys that they do not know. Major: they refuse."""


def document(kind: str, content: Mapping[str, Any], output: str, *, line: bool = False) -> str:
    """`content` as `json` or `yaml`; with `line` as one line of JSON."""
    whole = {"kind": f"llmgw.{kind}", "format_version": FORMAT_VERSION, **content}
    if output == "yaml":
        writer = ruamel.yaml.YAML(typ="safe", pure=True)
        writer.default_flow_style = False
        writer.explicit_start = True
        writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # it is None or bool
        stream = io.StringIO()
        writer.dump(whole, stream)
        return stream.getvalue().rstrip("\n")
    return json.dumps(whole) if line else json.dumps(whole, indent=2)
