"""An engine of a few lines for the agent's tests: a real process that misbehaves as it is told.

It takes llama-server's flags. `DOES` in its environment (a profile's env) is what it does, word by word.
"""

import http.server
import json
import os
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
NAME = "somebody-else" if "wrong-name" in DOES else FLAGS.get("--alias", "")


def fork(work: object) -> None:
    """A child that ignores TERM and sleeps, after `work`."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if callable(work):
            work()
        time.sleep(600)
        os._exit(0)


def wiped() -> None:
    """Into a session of its own, with an environment that tells nothing."""
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})


class Handler(http.server.BaseHTTPRequestHandler):
    """The pages of an engine."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if "unwell" in DOES else 200, {})
        elif self.path == "/v1/models":
            self.answer(200, "[" * 200_000 if "deep-models" in DOES else {"data": [{"id": NAME}]})
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
    print("loading the model", flush=True)
    if "dies" in DOES:
        print("error: cannot load the model: it is made of cheese\nbye", flush=True)
        sys.exit(3)
    if "workers" in DOES:
        fork(None)
        fork(os.setsid)
    if "wiped" in DOES:
        fork(wiped)
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
