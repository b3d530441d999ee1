"""Trace the walk of one message through the package: which files it enters, and how often it changes.

    python scripts/walk.py [send|stream] [--agent MODULE:AGENT] [--text TEXT] [--mermaid]

`trunkline serve` runs in this process on a SQLite file of its own; a thread calls it over a socket: some
messages to warm it up, then as many that are traced one by one. `send` waits for the finished task, `stream`
reads every event. Every call of a function of the package (a coroutine that goes on is such a call) is noted
on all threads, from the first byte of the request to a moment after the answer, so that what is done for a
task after its answer counts too. Printed is the walk with the median number of steps:

    files            files of the package that were entered, in order of first entry
    changes of file  how often a call was in another file than the call before it
    changes of room  the same for rooms, the folders of src/trunkline

With --mermaid, the rooms and the changes between them as a flowchart instead.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import trunkline
from trunkline.cli.main import main as trunkline_command

PACKAGE = str(Path(trunkline.__file__).parent) + os.sep
WARM = 20
TRACED = 9
READY_S = 20.0
# Long enough for a claim's release and the like, too short for most of what is done by the clock.
AFTER_S = 0.05
METHODS = {"send": "SendMessage", "stream": "SendStreamingMessage"}
TEXTS = {"send": "echo hello", "stream": "chunks 5"}


class Recorder:
    """Notes the file of every call while it is on; installed in every thread before the server starts."""

    def __init__(self) -> None:
        self.on = False
        self.steps: list[str] = []

    def install(self) -> None:
        """Be told of the calls of this thread and of those that it starts."""
        # Python 3.11 cannot set another thread's profile function: it is set at once and switched by a flag.
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Called by Python for every call and return of a thread."""
        if self.on and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self.steps.append(name[len(PACKAGE) :])


class Caller:
    """One connection to the agent, by which messages are sent as any client would."""

    def __init__(self, port: int, kind: str, text: str) -> None:
        self._kind = kind
        self._text = text
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)
        self._path = self._find_path()

    def _find_path(self) -> str:
        """The path of the JSON-RPC interface, once the server is up."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self._connection.request("GET", "/.well-known/agent-card.json")
                card = json.loads(self._connection.getresponse().read())
                break
            except ConnectionError:
                self._connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        interfaces = card["supportedInterfaces"]
        return next(urlsplit(i["url"]).path or "/" for i in interfaces if i["protocolBinding"] == "JSONRPC")

    def send(self, number: int) -> None:
        """Send one message and read the whole answer."""
        message = {"messageId": f"walk-{number}", "role": "ROLE_USER", "parts": [{"text": self._text}]}
        call = {"jsonrpc": "2.0", "id": number, "method": METHODS[self._kind], "params": {"message": message}}
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        self._connection.request("POST", self._path, json.dumps(call), headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200 or b'"error"' in body:
            raise RuntimeError(f"the agent answered {answer.status}: {body[:500]!r}")


def room_of(file: str) -> str:
    """The folder of the package that a file is in; a file at the top is a room of its own."""
    return Path(file).parts[0].removesuffix(".py")


def changes(steps: list[str]) -> int:
    """How often a step differs from the one before."""
    return sum(one != other for one, other in pairwise(steps))


def trace(kind: str, agent: str, text: str) -> list[str]:
    """The file of every call that one message causes: the median of several walks, by steps.

    Raises:
        RuntimeError: the agent refused the message.
    """
    recorder = Recorder()
    walks: list[list[str]] = []
    failed: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def call() -> None:
        try:
            caller = Caller(port, kind, text)
            for number in range(WARM):
                caller.send(number)
            for number in range(WARM, WARM + TRACED):
                time.sleep(AFTER_S)
                recorder.steps, recorder.on = [], True
                caller.send(number)
                time.sleep(AFTER_S)
                recorder.on = False
                walks.append(recorder.steps)
        except (RuntimeError, OSError, http.client.HTTPException) as error:
            failed.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with tempfile.TemporaryDirectory() as folder:
        thread = threading.Thread(target=call, daemon=True)
        recorder.install()
        thread.start()
        store = f"sqlite:///{folder}/walk.db"
        sys.argv = [
            "trunkline",
            "serve",
            agent,
            "--port",
            str(port),
            "--store",
            store,
            "--log-level",
            "error",
        ]
        try:
            trunkline_command()
        except SystemExit:
            pass  # the end of the command, by the signal above
        finally:
            sys.setprofile(None)
    if failed:
        raise RuntimeError(str(failed[0])) from failed[0]
    return sorted(walks, key=len)[len(walks) // 2]


def mermaid(steps: list[str]) -> str:
    """The rooms of a walk, and how often it went from each to each, as a Mermaid flowchart."""
    rooms = [room_of(step) for step in steps]
    files = {room: len({step for step in steps if room_of(step) == room}) for room in rooms}
    entered = "1 file", "{} files"
    lines = ["flowchart LR"]
    lines += [f'    {room}["{room}<br/>{entered[n > 1].format(n)}"]' for room, n in files.items()]
    moves = Counter((one, other) for one, other in pairwise(rooms) if one != other)
    lines += [f"    {one} -->|{count}| {other}" for (one, other), count in moves.items()]
    return "\n".join(lines)


def main() -> None:
    """Trace one kind of message and print its walk."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="?", choices=tuple(METHODS), default="send")
    parser.add_argument(
        "--agent", default="trunkline.demo:agent", metavar="MODULE:AGENT", help="who is served"
    )
    parser.add_argument("--text", help="what it is told (send: echo hello; stream: chunks 5)")
    parser.add_argument("--mermaid", action="store_true", help="draw a flowchart of the rooms")
    options = parser.parse_args()
    steps = trace(options.kind, options.agent, options.text or TEXTS[options.kind])
    if options.mermaid:
        print(mermaid(steps))
        return
    for number, file in enumerate(dict.fromkeys(steps), 1):
        print(f"{number:>4}  {file}")
    print(f"\n{'files':18}{len(set(steps)):>5}")
    print(f"{'changes of file':18}{changes(steps):>5}")
    print(f"{'changes of room':18}{changes([room_of(step) for step in steps]):>5}")


if __name__ == "__main__":
    main()
