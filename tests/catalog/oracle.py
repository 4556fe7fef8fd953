"""What yaml-language-server says about a corpus of mistakes: the places that editors mark, recorded once.

    npm install --prefix DIR yaml-language-server
    python -m tests.catalog.oracle DIR/node_modules/.bin/yaml-language-server

rewrites `oracle.json`. Tests compare our places with it, so that `validate` and the editor point at the
same character. Node is needed for the recording, not for the tests.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from llmgw.catalog import schema

RECORD = pathlib.Path(__file__).with_name("oracle.json")
MODELINE = f"# yaml-language-server: $schema={schema.FILE}\n"
MODEL = "kind: model\nname: llama\nsource: hf://a/b@6f6073b\nprofiles: [p]\n"
PROFILE = "kind: profile\nname: p\nengine: vllm\nnodes: 1\n"
CPU = "kind: profile\nname: p\nengine: llamacpp\ngpus_per_node: 0\n"

CORPUS: Mapping[str, str] = {
    "unknown field of a model": MODEL + "protekt: true\n",
    "unknown field of a profile": PROFILE + "tensor_paralel: 4\n",
    "unknown field first": "colour: red\n" + MODEL,
    "unknown field in a mapping": MODEL + "scaling:\n  min: 1\n  most: 2\n",
    "unknown field between braces": MODEL + "scaling: {min: 1, most: 2}\n",
    "unknown field of another engine": CPU + "cpu: {cores: 1, memory: 1GiB}\ntensor_parallel: 2\n",
    "unknown kind": "kind: modell\nname: a\n",
    "unknown engine": "kind: profile\nname: p\nengine: vlm\n",
    "text for a number": PROFILE + "gpus_per_node: four\n",
    "quoted number": PROFILE + 'gpus_per_node: "4"\n',
    "number for text": "kind: model\nname: 7\nsource: hf://a/b@6f6073b\nprofiles: [p]\n",
    "text for a list": "kind: model\nname: a\nsource: hf://a/b@6f6073b\nprofiles: p\n",
    "text for true or false": MODEL + "protect: maybe\n",
    "text for a mapping": MODEL + "scaling: 3\n",
    "number in a list": MODEL + "aliases: [a, 5]\n",
    "number in a list of lines": MODEL + "aliases:\n  - a\n  - 5\n",
    "too small": PROFILE + "tensor_parallel: 0\n",
    "too large": PROFILE + "max_model_len: 1\ngpu_memory_utilization: 1.5\n",
    "too small, nested": MODEL + "scaling:\n  min: -1\n",
    "wrong choice": PROFILE + "distributed: mpi\n",
    "name with a capital": "kind: model\nname: Llama\nsource: hf://a/b@6f6073b\nprofiles: [p]\n",
    "duration without a unit": PROFILE + "drain: 20x\n",
    "size without a unit": PROFILE + "gpu: {memory: 80}\n",
    "size of an unknown unit": PROFILE + "gpu: {memory: 80gigs}\n",
    "short digest": MODEL + "sha256: abc\n",
    "empty list": "kind: model\nname: a\nsource: hf://a/b@6f6073b\nprofiles: []\n",
    "missing field": "kind: model\nname: a\nprofiles: [p]\n",
    "missing fields": "kind: model\nname: a\n",
    "missing field in a mapping": CPU + "cpu:\n  cores: 1\n",
    "missing field between braces": CPU + "cpu: {cores: 1}\n",
    "value of a flag": PROFILE + "args:\n  max-num-seqs: {a: 1}\n",
    "value of a variable": PROFILE + "env:\n  A: 1\n",
    "label that is a number": PROFILE + "node_labels: {rack: 1}\n",
    "after wide characters": MODEL + "# 模型 😀\naliases: [a, 5]\n",
    "on a line with wide characters": MODEL + 'scaling: {"模型": 1}\n',
    "key twice": MODEL + "name: other\n",
    "key twice, nested": MODEL + "scaling:\n  min: 1\n  min: 2\n",
    "key twice between braces": MODEL + "scaling: {min: 1, min: 2}\n",
    "key thrice": MODEL + "protect: true\nprotect: false\nprotect: true\n",
    "a number as key": MODEL + "1: 2\n",
    "a list as key": MODEL + "? [a]\n: 1\n",
    "nothing for true or false": MODEL + "protect:\n",
    "nothing for a list": "kind: model\nname: a\nsource: hf://a/b@6f6073b\nprofiles:\n",
    "nothing for a mapping": PROFILE + "cpu:\n",
    "true or false of YAML 1.1": MODEL + "protect: yes\n",
    "fraction for a number": PROFILE + "nodes: 1.5\n",
    "no dash": MODEL + "aliases:\n  -a\n  - b\n",
    "list for a mapping": PROFILE + "env: [A]\n",
    "name with a capital in a list": MODEL + "aliases: [Ab]\n",
    "more than there may be": PROFILE + "gpus_per_node: 65\n",
    "no engine": "kind: profile\nname: p\n",
    "no kind": "name: p\n",
    "not more than 0": CPU + "cpu: {cores: 0, memory: 1GiB}\n",
    "source of another kind": "kind: model\nname: a\nsource: ftp://a/b\nprofiles: [p]\n",
    "flag with dashes": PROFILE + "args: {--x: 1}\n",
    "variable with a digit first": PROFILE + "env: {1A: x}\n",
    "versions of another language": PROFILE + 'engine_version: "~1"\n',
    "open bracket": MODEL + "aliases: [a\n",
    "open brace": MODEL + "scaling: {min: 1\n",
    "bracket too many": MODEL + "aliases: [a]]\n",
    "alias of nothing": MODEL + "aliases: [*nobody]\n",
    "reserved sign": MODEL + "aliases: [%a]\n",
    "a list as document": "- kind: model\n",
    "text as document": "model\n",
}
"""Name → a document with one mistake (some have one a line)."""

HALF_READ: Mapping[str, str] = {
    "tab": "kind:\n\t- a\n",
    "open quote": 'kind: "model\nname: a\n',
    "no colon": MODEL + "protect true\n",
    "no colon, and more": MODEL + "protect true\naliases: [a]\n",
    "two versions": "<<<<<<< HEAD\n" + MODEL + "=======\n" + PROFILE + ">>>>>>> other\n",
    "tag": MODEL + "protect: !yes true\n",
    "tag that calls": MODEL + "protect: !!python/name:os.system\n",
    "reserved sign first": "kind: @model\n",
    "escape that is none": MODEL + 'aliases: ["\\q"]\n',
}
"""Name → a document whose YAML is broken. The server marks what it cannot read, then guesses at the rest."""

HOVERS: Mapping[str, tuple[str, int, int]] = {
    "scaling": (MODEL + "scaling: {min: 1}\n", 5, 1),
    "drain": (PROFILE + "drain: 2m\n", 5, 2),
    "cores": (CPU + "cpu: {cores: 1, memory: 1GiB}\n", 5, 7),
}
"""Name → a document, and the line and column (from 0) where the pointer rests."""

COMPLETIONS: Mapping[str, tuple[str, int, int]] = {
    "fields of a model": (MODEL + "\n", 5, 0),
    "fields of a vllm profile": (PROFILE + "\n", 5, 0),
    "fields of scaling": (MODEL + "scaling:\n  \n", 6, 2),
    "kinds": ("kind: \n", 1, 6),
    "engines": ("kind: profile\nname: p\nengine: \n", 3, 8),
    "whole documents": ("\n", 1, 0),
}
"""Name → a document, and the line and column (from 0) where completion is asked for."""


class Server:
    """A language server on a pipe; documents lie in `directory` beside the schema."""

    def __init__(self, program: str, directory: pathlib.Path) -> None:
        (directory / schema.FILE).write_text(schema.text())
        self._directory = directory
        self._process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        self.ask(
            "initialize",
            processId=None,
            rootUri=directory.as_uri(),
            capabilities={"workspace": {"configuration": True}},
        )
        self._tell("initialized")
        self._tell("workspace/didChangeConfiguration", settings={"yaml": CONFIGURATION})

    def open(self, name: str, text: str) -> str:
        """Open a document; its address."""
        address = (self._directory / f"{name.replace(' ', '-')}.yaml").as_uri()
        document = {"uri": address, "languageId": "yaml", "version": 1, "text": MODELINE + text}
        self._tell("textDocument/didOpen", textDocument=document)
        return address

    def diagnostics(self, address: str) -> list[Any]:
        """What the server marks in the document, once it has looked."""
        while True:
            message = self._read()
            if (
                message.get("method") == "textDocument/publishDiagnostics"
                and message["params"]["uri"] == address
            ):
                return list(message["params"]["diagnostics"])

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                return message.get("result")

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(10)

    def _tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        pipe = _open(self._process.stdin)
        pipe.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        pipe.flush()

    def _read(self) -> dict[str, Any]:
        """The next message; what the server asks us is answered on the way."""
        pipe = _open(self._process.stdout)
        length = 0
        while line := pipe.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(pipe.read(length))
        if "id" in message and "method" in message:
            asked = (
                message["params"].get("items", []) if message["method"] == "workspace/configuration" else []
            )
            answer = [CONFIGURATION if item.get("section") == "yaml" else None for item in asked]
            self._send({"id": message["id"], "result": answer or None})
        return message


CONFIGURATION = {
    "validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}, "schemas": {},
}  # fmt: skip


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def record(program: str) -> dict[str, Any]:
    """Everything that the server says, by name; lines and columns from 1, in code points."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(program, pathlib.Path(directory).resolve())
        try:
            marked = {name: server.diagnostics(server.open(name, text)) for name, text in CORPUS.items()}
            return {
                "marked": {
                    name: [_mark(CORPUS[name], item) for item in found] for name, found in marked.items()
                },
                "half read": {
                    name: [_mark(text, item) for item in server.diagnostics(server.open(name, text))]
                    for name, text in HALF_READ.items()
                },
                "hovers": {name: _hover(server, name) for name in HOVERS},
                "completions": {name: _labels(server, name) for name in COMPLETIONS},
            }
        finally:
            server.close()


def _mark(text: str, diagnostic: Mapping[str, Any]) -> Mapping[str, Any]:
    start = diagnostic["range"]["start"]
    line = f"{MODELINE}{text}\n".splitlines()[start["line"]]
    before = line.encode("utf-16-le")[: 2 * start["character"]].decode("utf-16-le")
    return {"line": start["line"] + 1, "column": len(before) + 1, "said": diagnostic["message"]}


def _at(server: Server, name: str, case: tuple[str, int, int]) -> dict[str, Any]:
    text, line, column = case
    address = server.open(name, text)
    return {"textDocument": {"uri": address}, "position": {"line": line, "character": column}}


def _hover(server: Server, name: str) -> str:
    found = server.ask("textDocument/hover", **_at(server, f"hover {name}", HOVERS[name]))
    return str(found["contents"]["value"]).partition("\n\nSource: ")[0] if found else ""


def _labels(server: Server, name: str) -> list[str]:
    found = server.ask("textDocument/completion", **_at(server, f"complete {name}", COMPLETIONS[name]))
    return sorted(item["label"] for item in found["items"])


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(sys.argv[1]), indent=2, ensure_ascii=True) + "\n")
