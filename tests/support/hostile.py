"""Catalog files that mean harm, or that no editor would write: by name, what makes them.

Used by `python -m tests.lab yaml`. Each makes one file, or something that looks like one, below a
catalog that is valid otherwise; every one must be refused with its place.
"""

import os
import pathlib
import socket
from collections.abc import Callable, Mapping

Maker = Callable[[pathlib.Path], None]
MIB = 1 << 20
PROFILE = b"kind: profile\nname: p\nengine: llamacpp\ngpus_per_node: 1\n"
MODEL = b"kind: model\nname: hostile\nsource: hf://a/b@6f6073b\nprofiles: [small]\n"


def _laughs(levels: int, width: int) -> bytes:
    """Aliases of aliases: width to the power of levels."""
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        inner = b", ".join([b"*a%d" % (level - 1)] * width)
        lines.append(b"a%d: &a%d [%s]" % (level, level, inner))
    return b"\n".join(lines)


TEXTS: Mapping[str, bytes] = {
    # Aliases that multiply, or lead in a ring.
    "billion laughs": _laughs(10, 9),
    "laughs in mappings": b"a: &a {x: 1, y: 2}\n"
    + b"\n".join(b"%c: &%c {x: *%c, y: *%c}" % (i + 1, i + 1, i, i) for i in range(97, 121)),
    "quadratic aliases": b"a: &a [" + b"x, " * 15000 + b"x]\nb: [" + b"*a, " * 15000 + b"*a]",
    "many aliases": b"a: &a x\nb: [" + b"*a, " * 30000 + b"*a]",
    "many anchors": b"b:\n" + b"".join(b"- &a%d x\n" % i for i in range(30000)),
    "ring of one": b"a: &a [*a]",
    "ring as mapping": b"&a\nkind: *a",
    "ring through a key": b"? &a {b: *a}\n: 1",
    "ring of two": b"a: &a [&b [*a, *b]]",
    "alias without an anchor": MODEL + b"aliases: *nobody",
    "merge": b"a: &a {b: 1}\nc: {<<: *a}",
    "merge of itself": b"a: &a {<<: *a}",
    "merge of a list": b"a: &a {b: 1}\nc:\n  <<: [*a, *a]",
    # Tags.
    "python call": b'!!python/object/apply:os.system ["touch /tmp/pwned"]',
    "python name": b"kind: !!python/name:os.system",
    "python new": b"kind: !!python/object/new:subprocess.Popen [[ls]]",
    "binary": MODEL + b"sha256: !!binary aGVsbG8=",
    "set": b"!!set {a, b}",
    "ordered": b"!!omap [a: 1]",
    "own tag": b"kind: !include /etc/passwd",
    "verbatim tag": b"kind: !<tag:yaml.org,2002:str> model",
    "tag of a prefix": b"%TAG ! tag:example.org,2000:\n---\nkind: !x model",
    "tag on everything": b"!a\n? !b c\n: !d [!e f]",
    "a million tags": b"a:\n" + b"- !x y\n" * 150000,
    # Bytes.
    "NUL": b"kind: mo\0del",
    "NUL first": b"\0kind: model",
    "UTF-16 with a mark": MODEL.decode().encode("utf-16"),
    "UTF-16 big end first": b"\xfe\xff" + MODEL.decode().encode("utf-16-be"),
    "UTF-16 without a mark": MODEL.decode().encode("utf-16-le"),
    "UTF-32": MODEL.decode().encode("utf-32"),
    "Latin-1": MODEL + "# für\n".encode("latin-1"),
    "overlong": b"kind: \xc0\xaf",
    "surrogate": b"kind: \xed\xa0\x80",
    "cut short": b"kind: \xe2\x82",
    "beyond Unicode": b"kind: \xf4\x90\x80\x80",
    "bell": b"kind: mo\x07del",
    "escape": b"kind: \x1b]0;pwned\x07model",
    "no character": "kind: \ufffe".encode(),
    "turned round": "kind: \u202eledom\n".encode(),
    "random": bytes(range(256)) * 64,
    "an archive": b"PK\x03\x04" + bytes(range(1, 256)) * 8,
    # Depth.
    "33 levels": b"a: " + b"[" * 33 + b"]" * 33,
    "500 lists": b"a: " + b"[" * 500 + b"]" * 500,
    "500 mappings": b"{a: " * 500 + b"1" + b"}" * 500,
    "500 levels by indentation": b"".join(b" " * i + b"a:\n" for i in range(500)),
    "500 dashes": b"- " * 500 + b"x",
    "500 question marks": b"? " * 500 + b"x",
    "a million brackets": b"[" * (MIB - 1),
    "a million braces": b"{" * (MIB - 1),
    "a million dashes": b"- " * (MIB // 2 - 1),
    # Size.
    "2 MiB of comment": b"#" * (2 * MIB),
    "2 MiB of text": b"kind: " + b"x" * (2 * MIB),
    "one byte too large": MODEL + b"#" * (MIB - len(MODEL) + 1),
    "1 MiB of one key": b"a: 1\n" * (MIB // 5),
    "1 MiB of keys": b"".join(b"k%d: 1\n" % i for i in range(100000))[:MIB],
    "1 MiB of items": b"- \n" * (MIB // 3),
    "1 MiB of quotes": b'"' * (MIB - 1),
    "1 MiB on one line": b"kind: " + b"a b " * (MIB // 4 - 2),
    "1 MiB of question marks": b"?\n" * (MIB // 2 - 1),
    "1 MiB of commas": b"[" + b"," * (MIB - 3) + b"]",
    "1 MiB of lines": b"\n" * (MIB - 3) + b"[",
    "1 MiB of block text": b"kind: |\n" + b" x\n" * (MIB // 3 - 8),
    "10,000 documents": b"--- {}\n" * 10000,
    # Keys.
    "a key twice": MODEL + b"name: other",
    "no key": b": 1",
    "a list as key": b"? [a, b]\n: 1",
    "a mapping as key": b"{{a: 1}: 2}",
    "a number as key": b"1: 2",
    "a key of 1 MiB": b"? " + b"k" * (MIB - 10) + b"\n: 1",
    # Syntax.
    "tab": b"kind:\n\t- a",
    "open quote": b'kind: "model',
    "open bracket": b"profiles: [a",
    "bracket too many": b"kind: model]\n]",
    "reserved": b"kind: @model",
    "unknown directive": b"%YAML 9.9\n---\nkind: model",
    "template": b"kind: {{ model }}\n{% for x in y %}",
    "conflict": b"<<<<<<< HEAD\n" + MODEL + b"=======\n" + PROFILE + b">>>>>>> other\n",
    "HTML": b"<!DOCTYPE html><html><body>404</body></html>",
    # Values that are expensive to look at.
    "number of a million digits": b"nodes: " + b"9" * (MIB - 10),
    "infinite": PROFILE + b"cpu: {cores: .inf, memory: 1GiB}",
    "no number": PROFILE + b"cpu: {cores: .nan, memory: 1GiB}",
    "exponent": MODEL.replace(b"6f6073b", b"1") + b"sha256: 12e4567",
    "octal by accident": MODEL + b"sha256: 0123",
    "long name": MODEL.replace(b"hostile", b"a" * 500000),
    "long duration": PROFILE + b"drain: " + b"1" * 500000 + b"s",
    "long versions": PROFILE + b'engine_version: ">=1' + b".1" * 200000 + b'!"',
    "long source": MODEL.replace(b"hf://a/b@6f6073b", b"hf://" + b"a/" * 250000),
    "long pattern": PROFILE + b'gpu: {types: ["' + b"*a" * 200 + b'"], memory: x}',
    "many unknown names": MODEL.replace(b"[small]", b"[" + b", ".join(b"n%d" % i for i in range(15000)) + b"]"),
    "many unknown fields": MODEL + b"".join(b"f%d: 1\n" % i for i in range(15000)),
    "many clashes": MODEL + b"aliases: [" + b"small-alias, " * 15000 + b"x]",
    "many names, the last one twice": MODEL + b"aliases: [" + b"".join(b"n%d, " % i for i in range(15000)) + b"n14999]",
    "size of a thousand digits": PROFILE + b"gpu: {memory: " + b"9" * 1000 + b"GiB}",
    "size beyond 64 bits": PROFILE + b"gpu: {memory: 99999999999999GiB}",
    "flag with a NUL": PROFILE + b'args: {x: "a\\0b"}',
    "variable with a NUL": PROFILE + b'env: {X: "a\\0b"}',
    "path out": MODEL.replace(b"hf://a/b@6f6073b", b"file:///weights/../../etc"),
    "address with a user": MODEL.replace(b"hf://a/b@6f6073b", b"https://me:secret@host/x.gguf"),
    "address with a line": MODEL.replace(b"hf://a/b@6f6073b", b'"https://host/x\\r\\nHost: y"'),
}  # fmt: skip


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def _sparse(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


def _locked_file(path: pathlib.Path) -> None:
    path.write_bytes(MODEL)
    path.chmod(0)


def _locked_directory(path: pathlib.Path) -> None:
    path.with_suffix("").mkdir()
    path.with_suffix("").chmod(0)


THINGS: Mapping[str, Maker] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link out": lambda path: path.symlink_to("/etc/passwd"),
    "link to nothing": lambda path: path.symlink_to("nothing.yaml"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a directory": lambda path: path.with_suffix("").symlink_to("."),
    "10 GiB of nothing": _sparse,
    "file that may not be read": _locked_file,
    "directory that may not be listed": _locked_directory,
    "name that commands a terminal": lambda path: path.with_name("\x1b[2J.yaml").write_bytes(MODEL) and None,
    "name over two lines": lambda path: path.with_name("a\nb.yaml").write_bytes(MODEL) and None,
    "name that is no text": lambda path: (
        path.with_name(os.fsdecode(b"\xff.yaml")).write_bytes(MODEL) and None
    ),
}
"""What a directory may hold that is no file with bytes in it."""
