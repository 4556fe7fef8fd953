"""An engine of a few lines for the agent's tests: a real process that misbehaves as it is told.

It takes llama-server's flags. `DOES` in its environment (a profile's env) is what it does, word by word.
"""

import ctypes
import http.server
import json
import os
import pathlib
import signal
import sys
import time

DOES = os.environ.get("DOES", "").split()
FLAGS = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
ODD = [
    "no gzip at all",
    f"llamacpp:requests_processing {'9' * 5000}\nllamacpp:requests_deferred 1e999\n",
    "[" * 200_000,
    "\x00{}{}{\n" * 1000,
]
SEEN: list[str] = []
FAMILY = f"{os.environ['FAMILY']}/family-{os.getpid()}" if "FAMILY" in os.environ else ""
"""Where every process of this tree writes its pid down, if anybody asked for it."""
NAME = "somebody-else" if "wrong-name" in DOES else FLAGS.get("--alias", "")


def fork(work: object) -> None:
    """A child that ignores TERM and sleeps, after `work`."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if callable(work):
            work()
        born()
        time.sleep(600)
        os._exit(0)


def born() -> None:
    """Write our pid down."""
    if FAMILY:
        with open(FAMILY, "a") as file:
            file.write(f"{os.getpid()}\n")


def whole(members: int) -> None:
    """Wait until so many have written their pid down, and say that these are all."""
    if not FAMILY:
        return
    with open(FAMILY, "a+") as file:
        while file.seek(0) or file.read().count("\n") < members:
            time.sleep(0.01)
        file.write("all\n")


def again() -> None:
    """Into a session of its own, with a child in another one."""
    os.setsid()
    fork(os.setsid)


def orphaned() -> None:
    """Our parent ends: whoever walks from parent to child does not find us."""
    if os.fork() != 0:
        os._exit(0)


def retitled() -> None:
    """Write over our own command line, and over the environment unless SPT_NOENV asks not to, as setproctitle does."""
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last = int(fields[45]), int(fields[46 if os.environ.get("SPT_NOENV") else 48])
    ctypes.memset(first, 0, last - first)
    os.setsid()


def wiped() -> None:
    """Into a session of its own, with an environment that tells nothing."""
    os.setsid()
    born()
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})


def family() -> dict[str, str]:
    """What a child must know to write its pid down."""
    return {"FAMILY": os.environ["FAMILY"]} if FAMILY else {}


class Handler(http.server.BaseHTTPRequestHandler):
    """The pages of an engine."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if "unwell" in DOES else 200, {})
        elif self.path == "/v1/models":
            self.answer(200, "[" * 200_000 if "deep-models" in DOES else {"data": [{"id": NAME}]})
        elif "long-metrics" in DOES:
            SEEN.append(self.path)
            self.answer(
                200, "x 1\n" * 2**20 + "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n"
            )
        elif "odd-metrics" in DOES:
            self.answer(200, ODD[len(SEEN) % len(ODD)], "gzip" if len(SEEN) % 2 else "identity")
            SEEN.append(self.path)
        else:
            busy = int("busy" in DOES)
            moving = time.time_ns() if "moving" in DOES else 7
            self.answer(
                200,
                f"llamacpp:requests_processing {busy}\nllamacpp:requests_deferred 0\n"
                f"llamacpp:tokens_predicted_total {moving}\n",
            )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))  # unread, it would reset our answer
        if "mute" in DOES:
            time.sleep(600)
        if "slow" in DOES:
            time.sleep(0.2)
        if "deep-completion" in DOES:
            self.answer(200, "[" * 200_000)
        elif "embeds" in DOES:
            right = self.path == "/v1/embeddings"
            self.answer(200 if right else 501, {"data": [{"embedding": [0.5]}]} if right else {"error": {}})
        else:
            self.answer(500 if "broken" in DOES else 200, {"choices": [{"text": "I"}]})

    def answer(self, status: int, body: object, encoding: str = "identity") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    if "cleared" in DOES:  # as a wrapper does that ends in `exec env -i`
        rest = {"DOES": " ".join(word for word in DOES if word != "cleared"), "PATH": "/bin:/usr/bin"}
        os.execve(sys.executable, [sys.executable, "-S", *sys.argv], {**rest, **family()})
    print("loading the model", flush=True)
    if "dies" in DOES:
        print("error: cannot load the model: it is made of cheese\nbye", flush=True)
        sys.exit(3)
    if "workers" in DOES:
        fork(None)
        fork(os.setsid)
    if "twins" in DOES:
        fork(None)
        fork(None)
    if "wiped" in DOES:
        fork(wiped)
    if "sessions" in DOES:
        fork(again)
        fork(again)
    if "orphans" in DOES:
        fork(orphaned)
        fork(lambda: (os.setsid(), orphaned()))
    if "retitled" in DOES:
        fork(retitled)
    whole(
        2 * ("workers" in DOES)
        + 2 * ("twins" in DOES)
        + 4 * ("sessions" in DOES)
        + 2 * ("orphans" in DOES)
        + sum(word in DOES for word in ("wiped", "retitled"))
    )
    if "ignores-term" in DOES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "silent" in DOES:
        time.sleep(600)
    server = http.server.ThreadingHTTPServer((FLAGS["--host"], int(FLAGS["--port"])), Handler)
    server.daemon_threads = True
    signal.signal(signal.SIGUSR1, lambda *_: server.socket.close())
    signal.signal(signal.SIGUSR2, lambda *_: DOES.append("busy"))
    print("listening", flush=True)
    server.serve_forever()


main()
