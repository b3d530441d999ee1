"""One worker of several: its parent tells it what to serve, on a socket that the parent has bound."""

from __future__ import annotations

import os
import socket

import msgspec

from trunkline.cli.failure import print_error
from trunkline.cli.serve import WorkerOrder, prepare, serve
from trunkline.errors import TrunklineError


def main() -> None:
    """Read the order, serve, and end with the parent."""
    # A skill that reads its standard input must not read the parent's words.
    lifeline = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with lifeline.makefile("rb") as reader:
        line = reader.readline()
    if not line:
        return
    order = msgspec.json.decode(line, type=WorkerOrder)
    sockets = [socket.socket(fileno=each) for each in order.sockets]
    for each in sockets:
        each.set_inheritable(False)
    try:
        host = prepare(order.targets, order.flags, list(order.settings))
    except TrunklineError as error:
        print_error(error, ["serve"])
        raise SystemExit(2) from None
    serve(host, sockets, started=lambda _: lifeline.sendall(b"."), lifeline=lifeline)


if __name__ == "__main__":
    main()
