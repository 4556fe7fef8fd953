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
from collections.abc import Mapping, Sequence
from typing import IO, Any

from llmgw.catalog import schema
from tests.catalog.mistakes import APART, CORPUS, CPU, HALF_READ, MODEL, PROFILE

RECORD = pathlib.Path(__file__).with_name("oracle.json")
MODELINE = f"# yaml-language-server: $schema={schema.FILE}\n"

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
            return {
                "marked": _marked(server, CORPUS),
                "half read": _marked(server, HALF_READ),
                "apart": _marked(server, {name: case.text for name, case in APART.items()}),
                "hovers": {name: _hover(server, name) for name in HOVERS},
                "completions": {name: _labels(server, name) for name in COMPLETIONS},
            }
        finally:
            server.close()


def _marked(server: Server, texts: Mapping[str, str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return {
        name: [_mark(text, item) for item in server.diagnostics(server.open(name, text))]
        for name, text in texts.items()
    }


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
