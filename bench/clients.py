"""Clients: how much of one core a call and an event of a stream take, all against the same server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from msgspec import Struct, json

from bench.generator import HOST
from bench.scenario import Sample, Scale
from bench.servers import CONTENDERS, GENERATOR_CPU, PEERS, WORK, Contender, Server, pin

PARALLEL = 8
# So many that opening a stream counts for little: it is the event that is measured.
CHUNKS = 1_000
_SERVER = "trunkline-memory"
_SCRIPTS = {"trunkline-client": "trunkline_client.py", "a2a-sdk-client": "sdk_client.py"}


class Told(Struct, frozen=True):
    """What a client says of its work."""

    count: int
    bad: int
    cpu_s: float
    wall_s: float


def calls(contender: Contender, scale: Scale) -> Sample:
    """Sends that wait for their task, in calls per second of the client's CPU."""
    return _sample(_told(contender, "send", scale))


def events(contender: Contender, scale: Scale) -> Sample:
    """Streams read to their end, in events per second of the client's CPU."""
    return _sample(_told(contender, "stream", scale))


def _told(contender: Contender, mode: str, scale: Scale) -> Told:
    with Server(CONTENDERS[_SERVER]) as server:
        environment = contender.environment
        python = WORK / environment / "bin" / "python" if environment else Path(sys.executable)
        url = f"http://{HOST}:{server.endpoint.port}"
        amounts = (str(scale.warm), str(scale.seconds), str(PARALLEL), str(CHUNKS))
        client = subprocess.Popen(
            [str(python), str(PEERS / _SCRIPTS[contender.name]), url, mode, *amounts],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        pin(client.pid, GENERATOR_CPU)
        said, _ = client.communicate(timeout=scale.warm + scale.seconds + 60)
        if client.returncode:
            raise RuntimeError(f"{contender.label} failed; the server's log ends:\n{server.log()}")
    return json.decode(said, type=Told)


def _sample(told: Told) -> Sample:
    # Where the client is not the slower one its core is idle at times: the CPU counts, not the clock.
    extra = {"client_cpu_us": told.cpu_s / max(told.count, 1) * 1e6, "per_second": told.count / told.wall_s}
    return Sample(told.count / told.cpu_s, told.bad, extra=extra)
